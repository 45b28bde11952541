// Trains a mixer on one's own data: a Task hands out examples by their number, horner::train does the rest. The run folder has
// checkpoints, metrics and the model; a second start of a stopped run goes on where it was.
//
//   train OUT
#include <horner/horner.h>
#include <torch/types.h>

#include <iostream>

// One's own data: a clock that ticks 0 1 2 .. 11, and skips 3 hours after every 7. What is the next hour?
struct Clock : horner::Task {
  static constexpr int64_t kT = 32;  // tokens of an example

  horner::TaskShape shape() const override { return {.T = kT, .vocabulary = 12}; }
  int64_t size(horner::Split split) const override {
    return split == horner::Split::train ? horner::kEndless : 64;
  }
  horner::Batch batch(horner::Split, const std::vector<int64_t>& indices) const override {
    std::vector<at::Tensor> rows;
    for (const int64_t index : indices) {
      std::vector<int64_t> hours = {index % 12};
      while (int64_t(hours.size()) <= kT)
        hours.push_back((hours.back() + (hours.back() == 7 ? 4 : 1)) % 12);
      rows.push_back(torch::tensor(hours));
    }
    const at::Tensor all = torch::stack(rows);  // (B,T+1)
    horner::Batch made;
    made.tokens = all.narrow(1, 0, kT);
    made.targets = all.narrow(1, 1, kT);  // what must come out at each token
    return made;
  }
  horner::Json options() const override { return horner::Json::object(); }
};

int main(int argc, char** argv) try {
  horner::TrainOptions options;
  options.task = "clock";
  options.out = argc > 1 ? argv[1] : "runs";
  options.name = "clock";
  options.device = "cpu";
  options.model.pattern = {"gla:heads=2"};
  options.model.D = 32;
  options.optim.lr = 1e-2;
  options.train.batch = 16;
  options.schedule.steps = 60;
  const horner::TrainResult result = horner::train(options, std::make_shared<Clock>());
  std::cout << result.folder << ": " << result.steps << " steps of " << result.parameters
            << " parameters, accuracy " << result.test.value("accuracy") << "\n";

  const auto model = horner::load_model(result.folder);  // what was trained, read again
  horner::ModelState state;
  const at::Tensor logits = model->forward(torch::tensor({{5, 6, 7}}), state);
  std::cout << "after 5 6 7 comes " << logits.select(1, -1).argmax(-1).item<int64_t>() << "\n";
} catch (const horner::Error& error) {
  std::cerr << "train: " << error.what() << "\n";
  return error.exit_code;
}
