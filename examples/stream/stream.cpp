// Decodes a stream from a state, forks it, and rolls it back. A state is a value: a copy of it is a fork, and an old copy is
// the place to roll back to. Tensors are shared, so a copy costs nothing.
//
//   stream                random weights
//   stream runs/NAME      the model of a run on text or bytes
#include <horner/horner.h>
#include <torch/types.h>

#include <iostream>

struct Stream {
  std::shared_ptr<horner::Model> model;
  horner::ModelState state;
  int64_t next = 0;  // the most likely next token

  void read(const std::vector<int64_t>& tokens) {
    const at::NoGradGuard no_gradients;
    const at::Tensor logits = model->forward(torch::tensor(tokens).unsqueeze(0), state);
    next = logits.select(1, -1).argmax(-1).item<int64_t>();  // (1,T,vocabulary) -> last token
  }
  std::vector<int64_t> write(int64_t n) {
    std::vector<int64_t> tokens;
    for (; n > 0; --n) {
      tokens.push_back(next);
      read({next});
    }
    return tokens;
  }
};

std::shared_ptr<horner::Model> some_model() {
  horner::ModelOptions options;
  options.pattern = {"gla:heads=4", "window:window=16,heads=4"};
  return horner::make_model(options, 1);
}

int main(int argc, char** argv) try {
  Stream stream{argc > 1 ? horner::load_model(argv[1]) : some_model(), {}};
  stream.model->eval();
  const std::string prompt = "A state is all that a model needs of the past.";
  stream.read({prompt.begin(), prompt.end()});
  std::cout << "state: " << stream.state.bytes() << " bytes after " << prompt.size() << " tokens\n";

  const Stream before = stream;         // remembered
  Stream fork = stream;                 // goes another way
  const auto first = stream.write(20);  // decodes 20 tokens
  fork.read({' ', 'N', 'o'});
  const auto other = fork.write(20);
  std::cout << "fork: " << (first == other ? "the same" : "another") << " continuation\n";

  stream = before;  // rolled back by 20 tokens
  std::cout << "roll back: " << (stream.write(20) == first ? "the same" : "another")
            << " continuation\n";
} catch (const horner::Error& error) {
  std::cerr << "stream: " << error.what() << "\n";
  return error.exit_code;
}
