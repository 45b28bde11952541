#include "lab/bench/train.h"

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"
#include "core/device.h"
#include "lab/bench/replayed.h"
#include "lab/process.h"
#include "lab/statistics.h"
#include "mixers/mixer.h"
#include "train/autocast.h"
#include "train/cost.h"
#include "train/limits.h"
#include "train/loss.h"
#include "train/optimizer.h"

namespace horner {
namespace {

constexpr int64_t kWarm = 3, kProfiled = 3;  // steps

Json peer_answer(const BenchTrainOptions& o, const std::string& mixer, int64_t D, at::Device d) {
  std::vector<std::string> words = {
      o.peer, repository_file("tools/bench_train_peer.py"), "--mixer", mixer};
  for (const auto& [flag, value] :
       {std::pair{"--D", D},
        {"--T", o.T},
        {"--B", o.B},
        {"--heads", o.heads},
        {"--layers", o.layers},
        {"--mlp_dim", o.mlp_dim},
        {"--vocabulary", o.vocabulary},
        {"--steps", o.steps},
        {"--threads", int64_t(at::get_num_threads())}}) {
    words.insert(words.end(), {flag, std::to_string(value)});
  }
  words.insert(words.end(), {"--device", d.is_cuda() ? "cuda" : "cpu"});
  if (o.compile) words.emplace_back("--compile");
  std::string answer;
  const int code = run_program(words, [&](const std::string& line) { answer += line + "\n"; });
  if (code != 0) throw RunError("the peer ended with {}: {}", code, fmt::join(words, " "));
  return parse_json(answer, "the peer's answer");
}

bool has_peer(const std::string& mixer) {
  return mixer == "softmax" || mixer == "linear" || mixer == "taylor";
}

// "gla" -> "gla:heads=16", if the mixer has heads and the settings do not say how many.
std::string with_heads(const std::string& mixer, int64_t heads) {
  MixerSpec spec = MixerSpec::parse(mixer);
  if (!spec.find("heads") && has_setting(find_mixer(spec.name), "heads"))
    spec.settings.push_back({"heads", std::to_string(heads)});
  return spec.text();
}

TargetBatch random_batch(const BenchTrainOptions& o, at::Device device) {
  const at::Tensor tokens = at::randint(o.vocabulary, {o.B, o.T + 1}, at::kLong);
  Batch batch;
  batch.tokens = tokens.narrow(1, 0, o.T).contiguous();
  batch.targets = tokens.narrow(1, 1, o.T).contiguous();
  return to_device(find_targets(batch), device);
}

ModelOptions model_of(const BenchTrainOptions& o, const std::string& mixer, int64_t D) {
  ModelOptions m;
  m.pattern = {with_heads(mixer, o.heads)};
  m.layers = o.layers;
  m.D = D;
  m.mlp_dim = o.mlp_dim;
  m.vocabulary = o.vocabulary;
  return m;
}

int64_t layer_parameters(const BenchTrainOptions& o, const std::string& mixer, int64_t D) {
  ModelOptions m = model_of(o, mixer, D);
  m.vocabulary = m.layers = 1;
  const int64_t one = make_model(m, 0)->parameters_count();
  m.layers = 2;
  return make_model(m, 0)->parameters_count() - one;
}

// Layers of the model that comes nearest to the size of the first mixer's.
int64_t equal_layers(const BenchTrainOptions& o, const std::string& mixer, int64_t D) {
  const double whole = double(o.layers * layer_parameters(o, o.mixer[0], D));
  return std::max<int64_t>(1, std::llround(whole / double(layer_parameters(o, mixer, D))));
}

// Before anything is made, as for `train`.
void check_sizes(const BenchTrainOptions& o, const std::string& mixer, int64_t D, bool bf16) {
  for (const auto& [name, value] :
       {std::pair{"D", D},
        {"T", o.T},
        {"B", o.B},
        {"heads", o.heads},
        {"layers", o.layers},
        {"vocabulary", o.vocabulary}})
    HORNER_CHECK(value >= 1, "{} must be at least 1, got {}", name, value);
  TrainOptions run;
  run.model = model_of(o, mixer, D);
  run.device = o.device;
  run.train.batch = o.B;
  run.train.precision = bf16 ? "bf16" : "fp32";
  check_memory(run, {.T = o.T, .vocabulary = o.vocabulary});
}

BenchTrainRow time_steps(
    Model& model,
    const BenchTrainOptions& o,
    const std::string& mixer,
    int64_t D,
    at::Device device,
    bool bf16
) {
  restart_memory_peak(device);
  Optimizer optimizer(model, {});
  const auto run = [&](const TargetBatch& batch) {
    optimizer.zero_gradients();
    at::Tensor loss;
    {
      const Autocast precision(device, bf16);
      loss = loss_sum(model, batch) / double(batch.count);
    }
    torch::autograd::backward({loss}, {});
    optimizer.step(1e-3);
    loss.item<float>();  // waits for the device
  };
  std::vector<double> times;
  for (int64_t step = 0; step < o.steps + kWarm; ++step) {
    const TargetBatch batch = random_batch(o, device);
    const auto start = std::chrono::steady_clock::now();
    run(batch);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (step >= kWarm) times.push_back(taken.count());
  }
  BenchTrainRow row;
  row.mixer = mixer;
  row.D = D;
  row.layers = o.layers;
  row.parameters = model.parameters_count();
  row.milliseconds = 1e3 * median(times);
  row.tokens_per_second = double(o.B * o.T) / median(times);
  if (device.is_cuda()) row.memory = memory_peak(device);
  if (o.profile) {
    const TargetBatch batch = random_batch(o, device);
    row.profile = profile_steps([&] { run(batch); }, kProfiled, device);
    row.profile.add_idle(row.milliseconds);
  }
  return row;
}

// Steps of the training loop, one after the other, without a wait between them.
void add_replayed(
    BenchTrainRow& row, Model& model, const BenchTrainOptions& o, at::Device device, bool bf16
) {
  if (!device.is_cuda()) return;
  c10::getDeviceAllocator(device.type())->emptyCache();  // of the steps before, on another stream
  const int64_t steps = std::max(o.steps, std::min<int64_t>(500, int64_t(2000 / row.milliseconds)));
  const ReplayedTime time =
      time_replayed(model, model_of(o, row.mixer, row.D), o.B, o.T, steps, device, bf16);
  if (!time.replayed) {
    row.graph_failure = time.why.empty() ? "not recorded" : time.why;
    return;
  }
  row.graph_milliseconds = 1e3 * time.seconds;
  row.tokens_per_second = double(o.B * o.T) / time.seconds;
}

// The program and its peer by turns.
BenchTrainRow time_rounds(
    const BenchTrainOptions& o, const std::string& mixer, int64_t D, at::Device device, bool bf16
) {
  BenchTrainRow best;
  Json peer;
  const auto model = make_model(model_of(o, mixer, D), 0);
  model->to(device);
  for (int64_t round = 0; round < o.rounds; ++round) {
    BenchTrainRow row;
    try {
      row = time_steps(*model, o, mixer, D, device, bf16);
      add_replayed(row, *model, o, device, bf16);
    } catch (const c10::OutOfMemoryError&) {
      return {.mixer = mixer, .D = D, .layers = o.layers, .failure = "out of memory"};
    }
    const bool faster = row.tokens_per_second > best.tokens_per_second;
    if (round == 0 || (faster && (row.graph_failure.empty() || !best.graph_failure.empty())))
      best = row;
    if (o.peer.empty() || !has_peer(mixer)) continue;
    const Json answer = peer_answer(o, mixer, D, device);
    if (peer.is_null()) peer = answer;
    for (auto& [name, value] : peer.items()) value = std::min(value, answer.at(name));
  }
  if (peer.is_null()) return best;
  best.peer_milliseconds = 1e3 * peer.at("seconds").get<double>();
  best.peer_memory = peer.at("memory").get<double>();
  if (!o.compile) return best;
  best.compiled_milliseconds = 1e3 * peer.at("compiled_seconds").get<double>();
  best.compiled_memory = peer.at("compiled_memory").get<double>();
  return best;
}

}  // namespace

BenchTrainReport bench_train(
    const BenchTrainOptions& o,
    const std::function<void(const std::string&, const BenchTrainReport&)>& tell
) {
  HORNER_CHECK(o.steps >= 1, "steps must be at least 1, got {}", o.steps);
  HORNER_CHECK(o.rounds >= 1, "rounds must be at least 1, got {}", o.rounds);
  for (const std::string& mixer : o.mixer) find_mixer(MixerSpec::parse(mixer).name);
  const at::Device device = find_device(o.device);
  const bool bf16 = o.precision == "bf16" || (o.precision == "auto" && device.is_cuda());
  for (const std::string& mixer : o.mixer) {
    for (const int64_t D : o.D) check_sizes(o, mixer, D, bf16);
  }
  BenchTrainReport report{describe_device(device), o, {}};
  for (const std::string& mixer : o.mixer) {
    for (const int64_t D : o.D) {
      if (tell) tell(fmt::format("{} D={}", mixer, D), report);
      BenchTrainOptions own = o;
      if (o.equal) own.layers = equal_layers(o, mixer, D);
      report.rows.push_back(time_rounds(own, mixer, D, device, bf16));
    }
  }
  return report;
}

Json BenchTrainReport::json() const {
  Json json = {{"device", device}, {"options", to_json(options)}, {"rows", Json::array()}};
  for (const BenchTrainRow& r : rows) {
    json["rows"].push_back(
        {{"mixer", r.mixer},
         {"D", r.D},
         {"layers", r.layers},
         {"parameters", r.parameters},
         {"milliseconds", r.milliseconds},
         {"tokens_per_second", r.tokens_per_second},
         {"memory", r.memory},
         {"graph_milliseconds", r.graph_milliseconds},
         {"graph_failure", r.graph_failure},
         {"peer_milliseconds", r.peer_milliseconds},
         {"peer_memory", r.peer_memory},
         {"compiled_milliseconds", r.compiled_milliseconds},
         {"compiled_memory", r.compiled_memory},
         {"failure", r.failure}}
    );
    if (!r.profile.parts.empty()) json["rows"].back()["profile"] = r.profile.json();
  }
  return json;
}

}  // namespace horner
