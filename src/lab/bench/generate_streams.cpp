// Several streams that step together, and one stream on a GPU: what `horner serve` runs.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/device.h"
#include "engine/load.h"
#include "lab/bench/generate.h"
#include "lab/statistics.h"

namespace horner {
namespace {

constexpr int64_t kPiece = 256;    // tokens of a prompt at a time, as the engine reads them
constexpr int64_t kWarm = 3;       // steps: the second of a shape is recorded
constexpr int64_t kGiB = 1 << 30;  // bytes of a copy

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Bytes/s that a copy of 1 GiB reads and writes, the best of 5.
double copy_rate(at::Device device) {
  const at::Tensor from = at::ones({kGiB / 4}, at::device(device)), to = at::empty_like(from);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    to[0].item();  // waits
    const double begin = seconds();
    for (int i = 0; i < 8; ++i) to.copy_(from);
    to[0].item();
    best = std::max(best, 8. * 2 * double(kGiB) / (seconds() - begin));
  }
  return best;
}

void time_streams(
    Runner& runner, const std::vector<int32_t>& tokens, int64_t steps, StreamsRow& row
) {
  std::vector<std::unique_ptr<StreamState>> own;
  own.push_back(runner.open());
  const std::span<const int32_t> prompt(tokens.data(), size_t(row.context));
  const double begin = seconds();
  for (int64_t at = 0; at < row.context; at += kPiece)
    runner.read(*own[0], prompt.subspan(size_t(at), size_t(std::min(kPiece, row.context - at))));
  row.prompt = std::max(row.prompt, double(row.context) / (seconds() - begin));
  while (int64_t(own.size()) < row.streams) own.push_back(runner.fork(*own[0]));
  std::vector<StreamState*> states;
  for (const auto& one : own) states.push_back(one.get());
  std::vector<int32_t> next(states.size());
  std::vector<double> each;
  for (int64_t i = 0; i < kWarm + steps; ++i) {
    const std::vector<int32_t> given(states.size(), tokens[size_t(row.context + i)]);
    const double start = seconds();
    runner.step_likeliest(states, given, next);
    if (i >= kWarm) each.push_back(seconds() - start);
  }
  row.text = std::max(row.text, double(row.streams) / median(each));
  row.state_bytes = double(runner.bytes(*own[0]));
}

// The logits of the first tokens, each fed alone.
at::Tensor stepped_logits(Runner& runner, const std::vector<int32_t>& tokens, int64_t n) {
  const auto state = runner.open();
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < n; ++i)
    rows.push_back(runner.step(std::vector{state.get()}, std::vector{tokens[size_t(i)]}).clone());
  return at::cat(rows);
}

}  // namespace

BenchGenerateReport bench_streams(
    const BenchGenerateOptions& o, const std::function<void(const std::string&)>& tell
) {
  const c10::NoGradGuard no_graph;
  const auto say = [&](const std::string& what) {
    if (tell) tell(what);
  };
  const at::Device device = find_device(o.device);
  const int64_t free = free_memory(device);
  BenchGenerateReport report;
  report.options = o, report.device = describe_device(device);
  report.threads = at::get_num_threads();
  say("load");
  const double begin = seconds();
  const LanguageModel loaded = load_language_model(o.model, device, o.weights);
  report.load_seconds = seconds() - begin;
  const int64_t longest = *std::max_element(o.context.begin(), o.context.end());
  const int64_t most = *std::max_element(o.streams.begin(), o.streams.end());
  const std::vector<int32_t> tokens =
      bench_tokens(o, loaded.opened, std::max(longest + kWarm + o.steps, o.kl_tokens));
  say("fp32");
  const LoadedModel whole = open_model(o.model);
  whole.model->to(device);
  const at::Tensor ids = at::tensor(tokens, at::kLong).narrow(0, 0, o.kl_tokens).unsqueeze(0);
  ModelState state;
  const at::Tensor logits = whole.model->forward(ids.to(device), state).squeeze(0);
  const at::Tensor log_p = at::log_softmax(logits.to(at::kCPU, at::kFloat), -1);
  report.fp32_nats = fidelity_of(log_p, log_p, tokens).nats;
  for (const bool invariant : {false, true}) {
    if (invariant && device.is_cpu()) continue;  // a CPU's products are always so
    const std::unique_ptr<Runner> runner = fastest_runner(loaded, o.weights, invariant, most);
    report.weight_bytes = double(runner->weight_bytes());
    const size_t first = report.streams.size();
    for (const int64_t context : o.context) {
      for (const int64_t streams : o.streams) {
        StreamsRow& row = report.streams.emplace_back();
        row.streams = streams, row.context = context, row.invariant = invariant;
        row.bytes = report.weight_bytes + double(streams) * double(runner->bytes_after(context));
      }
    }
    for (int64_t round = 0; round < o.rounds; ++round) {
      for (size_t i = first; i < report.streams.size(); ++i) {
        StreamsRow& row = report.streams[i];
        say(fmt::format("{} streams, context {}", row.streams, row.context));
        time_streams(*runner, tokens, o.steps, row);
      }
    }
    if (!invariant)
      report.own = fidelity_of(log_p, stepped_logits(*runner, tokens, o.kl_tokens), tokens);
    report.decoder = runner->name();  // says now whether steps were recorded
  }
  report.memory = double(free - free_memory(device));
  say("copy rate");
  report.read_rate = device.is_cpu() ? cpu_read_rate() : copy_rate(device);
  return report;
}

}  // namespace horner
