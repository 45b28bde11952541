#include "lab/bench/train.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "lab/process.h"
#include "lab/statistics.h"
#include "mixers/mixer.h"
#include "train/autocast.h"
#include "train/cost.h"
#include "train/loss.h"
#include "train/optimizer.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWarm = 3;

// The script is in the source tree that the program was built from.
std::string peer_script() {
  const std::string name = "tools/bench_train_peer.py";
  if (fs::exists(name)) return name;
  std::error_code error;
  for (fs::path at = fs::read_symlink("/proc/self/exe", error).parent_path();
       at.has_relative_path();
       at = at.parent_path()) {
    if (fs::exists(at / name)) return at / name;
  }
  throw DataError("{}: is not here; run this in the repository's root", name);
}

Json peer_answer(const BenchTrainOptions& o, const std::string& mixer, int64_t D, at::Device d) {
  std::vector<std::string> words = {o.peer, peer_script(), "--mixer", mixer};
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

BenchTrainRow time_steps(
    const BenchTrainOptions& o, const std::string& mixer, int64_t D, at::Device device, bool bf16
) {
  ModelOptions m;
  m.pattern = {with_heads(mixer, o.heads)};
  m.layers = o.layers;
  m.D = D;
  m.mlp_dim = o.mlp_dim;
  m.vocabulary = o.vocabulary;
  const auto model = make_model(m, 0);
  model->to(device);
  restart_memory_peak(device);
  Optimizer optimizer(*model, {});
  std::vector<double> times;
  for (int64_t step = 0; step < o.steps + kWarm; ++step) {
    const at::Tensor tokens = at::randint(o.vocabulary, {o.B, o.T + 1}, at::kLong);
    Batch batch;
    batch.tokens = tokens.narrow(1, 0, o.T).contiguous();
    batch.targets = tokens.narrow(1, 1, o.T).contiguous();
    const TargetBatch c = to_device(find_targets(batch), device);
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_gradients();
    at::Tensor loss;
    {
      const Autocast precision(device, bf16);
      loss = losses(*model, c).each.mean();
    }
    torch::autograd::backward({loss}, {});
    optimizer.step(1e-3);
    loss.item<float>();  // waits for the device
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (step >= kWarm) times.push_back(taken.count());
  }
  BenchTrainRow row;
  row.mixer = mixer;
  row.D = D;
  row.parameters = model->parameters_count();
  row.milliseconds = 1e3 * median(times);
  row.tokens_per_second = double(o.B * o.T) / median(times);
  if (device.is_cuda()) row.memory = memory_peak(device);
  return row;
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
  BenchTrainReport report{describe_device(device), o, {}};
  for (const std::string& mixer : o.mixer) {
    for (const int64_t D : o.D) {
      if (tell) tell(fmt::format("{} D={}", mixer, D), report);
      BenchTrainRow best;
      Json peer;
      for (int64_t round = 0; round < o.rounds; ++round) {
        BenchTrainRow row;
        try {
          row = time_steps(o, mixer, D, device, bf16);
        } catch (const c10::OutOfMemoryError&) {
          best = {.mixer = mixer, .D = D, .failure = "out of memory"};
          break;
        }
        if (round == 0 || row.milliseconds < best.milliseconds) best = row;
        if (o.peer.empty() || !has_peer(mixer)) continue;
        const Json answer = peer_answer(o, mixer, D, device);
        if (peer.is_null() || answer.at("seconds") < peer.at("seconds")) peer = answer;
      }
      if (!peer.is_null()) {
        best.peer_milliseconds = 1e3 * peer.at("seconds").get<double>();
        best.peer_memory = peer.at("memory").get<double>();
      }
      report.rows.push_back(best);
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
         {"parameters", r.parameters},
         {"milliseconds", r.milliseconds},
         {"tokens_per_second", r.tokens_per_second},
         {"memory", r.memory},
         {"peer_milliseconds", r.peer_milliseconds},
         {"peer_memory", r.peer_memory},
         {"failure", r.failure}}
    );
  }
  return json;
}

}  // namespace horner
