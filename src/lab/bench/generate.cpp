#include "lab/bench/generate.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/range.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/open.h"
#include "io/compressed.h"
#include "io/text_files.h"
#include "lab/process.h"
#include "lab/statistics.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTokens = 1 << 24, kMostStreams = 4096;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double peak_memory() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) * 1024;
}

struct Timed {
  double prompt, text;  // tokens/s
};
Timed time_context(CpuDecoder& decoder, std::span<const int32_t> tokens, int64_t prompt) {
  Pages stream;
  const double begin = seconds();
  decoder.prefill(stream, tokens.first(size_t(prompt)));
  const double read = seconds() - begin;
  std::vector<double> each;
  for (const int32_t token : tokens.subspan(size_t(prompt))) {
    const double start = seconds();
    decoder.step(stream, token);
    each.push_back(seconds() - start);
  }
  return {double(prompt) / read, 1 / median(each)};
}

// A folder that is gone at the end.
struct Scratch {
  fs::path path = fs::temp_directory_path() / fmt::format("horner_bench_{}", getpid());
  Scratch() { fs::create_directories(path); }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  std::string file(const char* name) const { return path / name; }
};

Json run_peer(
    const BenchGenerateOptions& o,
    const std::string& file,
    const Scratch& scratch,
    std::span<const int32_t> tokens,
    bool logits
) {
  write_file(
      scratch.file("ids"),
      std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t))
  );
  std::vector<std::string> words = {
      o.peer,
      repository_file("tools/bench_generate_peer.py"),
      "--flash",
      "--model",
      file,
      "--ids",
      scratch.file("ids"),
      "--contexts",
      fmt::format("{}", fmt::join(o.context, ",")),
      "--steps",
      std::to_string(o.steps),
      "--threads",
      std::to_string(at::get_num_threads())};
  if (logits) {
    const auto more = {
        std::string("--logits"),
        scratch.file("logits"),
        std::string("--logits-tokens"),
        std::to_string(o.kl_tokens)};
    words.insert(words.end(), more.begin(), more.end());
  }
  std::string answer;
  const int code = run_program(words, [&](const std::string& line) { answer += line + "\n"; });
  if (code != 0) throw RunError("the peer ended with {}: {}", code, fmt::join(words, " "));
  return parse_json(answer, "the peer's answer");
}

void add_peer(const Json& answer, BenchGenerateReport& report) {
  report.peer_version = "llama-cpp-python " + answer.at("version").get<std::string>();
  report.peer_memory = std::max(report.peer_memory, answer.at("memory").get<double>());
  for (size_t i = 0; i < report.rows.size(); ++i) {
    GenerateRow& row = report.rows[i];
    row.peer_prompt = std::max(row.peer_prompt, answer.at("rows").at(i).at("prompt").get<double>());
    row.peer_text = std::max(row.peer_text, answer.at("rows").at(i).at("text").get<double>());
  }
}

at::Tensor read_logits(const std::string& path, int64_t rows) {
  const std::string bytes = read_file(path);
  const at::Tensor all = at::empty({int64_t(bytes.size() / sizeof(float))});
  std::memcpy(all.data_ptr(), bytes.data(), size_t(all.numel()) * sizeof(float));
  return all.view({rows, -1});
}

// The logits of the first tokens, each fed alone.
at::Tensor own_logits(CpuDecoder& decoder, const std::vector<int32_t>& tokens, int64_t n) {
  const at::Tensor y = at::empty({n, decoder.vocabulary()});
  Pages stream;
  for (int64_t i = 0; i < n; ++i) {
    const std::span<const float> logits = decoder.step(stream, tokens[size_t(i)]);
    std::copy(logits.begin(), logits.end(), y.data_ptr<float>() + i * y.size(1));
  }
  return y;
}

void check_options(const BenchGenerateOptions& o) {
  check_range("--steps", o.steps, 1, kMostTokens);
  check_range("--kl_tokens", o.kl_tokens, 1, kMostTokens);
  check_range("--rounds", o.rounds, 1, 10000);
  for (const auto& [name, list, most] :
       {std::tuple{"--context", &o.context, kMostTokens},
        {"--streams", &o.streams, kMostStreams}}) {
    HORNER_CHECK(!list->empty(), "{} needs at least one number", name);
    for (const int64_t n : *list) check_range(name, n, 1, most);
  }
  for (const std::string& weights : o.beside)
    HORNER_CHECK(
        weights == "fp32" || weights == "bf16" || weights == "q8" || weights == "q4",
        "--beside: '{}' are no weights; these are: fp32, bf16, q8, q4",
        weights
    );
}

using Say = std::function<void(const std::string&)>;

// Fills report.rows: in each round every context, then the peer.
void time_rounds(
    const std::string& source,
    CpuDecoder& decoder,
    std::span<const int32_t> tokens,
    const Scratch& scratch,
    const Say& say,
    BenchGenerateReport& report
) {
  const BenchGenerateOptions& o = report.options;
  for (const int64_t context : o.context) {
    const int64_t bytes = decoder.weight_bytes() + decoder.cache_bytes(context);
    const double kept = double(decoder.state_bytes(context));
    report.rows.push_back({context, 0, 0, double(bytes), kept, 0, 0});
  }
  for (int64_t round = 0; round < o.rounds; ++round) {
    for (GenerateRow& row : report.rows) {
      say(fmt::format("round {}: context {}", round + 1, row.context));
      const Timed own =
          time_context(decoder, tokens.first(size_t(row.context + o.steps)), row.context);
      row.prompt = std::max(row.prompt, own.prompt), row.text = std::max(row.text, own.text);
    }
    if (round == 0) report.memory = peak_memory();
    if (o.peer.empty()) continue;
    say(fmt::format("round {}: llama.cpp", round + 1));
    add_peer(run_peer(o, source, scratch, tokens, round == 0), report);
  }
}

// How far the decoder's logits, those with other weights, and those that the peer has written are from the model in fp32.
void measure_fidelity(
    CpuDecoder& decoder,
    const std::vector<int32_t>& tokens,
    const Scratch& scratch,
    const Say& say,
    BenchGenerateReport& report
) {
  const BenchGenerateOptions& o = report.options;
  const at::Tensor logits = own_logits(decoder, tokens, o.kl_tokens);
  const LoadedModel whole = open_model(o.model);
  ModelState state;
  const at::Tensor ids = at::tensor(tokens, at::kLong).narrow(0, 0, o.kl_tokens).unsqueeze(0);
  const at::Tensor log_p = at::log_softmax(whole.model->forward(ids, state).squeeze(0), -1);
  report.own = fidelity_of(log_p, logits, tokens);
  report.fp32_nats = fidelity_of(log_p, log_p, tokens).nats;
  for (const std::string& weights : o.beside) {
    say("KL of " + weights);
    const std::unique_ptr<CpuDecoder> other = cpu_decoder(whole, weights);
    const at::Tensor others = own_logits(*other, tokens, o.kl_tokens);
    report.beside.push_back(
        {weights, double(other->weight_bytes()), fidelity_of(log_p, others, tokens)}
    );
  }
  if (!o.peer.empty())
    report.peer = fidelity_of(log_p, read_logits(scratch.file("logits"), o.kl_tokens), tokens);
}

}  // namespace

std::vector<int32_t> bench_tokens(
    const BenchGenerateOptions& o, const LoadedModel& model, int64_t n
) {
  std::vector<int32_t> tokens;
  for (const TextFile& file : find_text(o.text).files) {
    std::string text = read_decompressed(file.path);
    text.resize(std::min(text.size(), text.find('\n', size_t(n) * 8)));  // a token has fewer bytes
    const std::vector<int32_t> more = model.need_tokenizer().encode(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (int64_t(tokens.size()) >= n) break;
  }
  if (tokens.empty()) throw DataError("the text has no tokens");
  for (size_t i = 0; int64_t(tokens.size()) < n; ++i) tokens.push_back(tokens[i]);
  tokens.resize(size_t(n));
  return tokens;
}

// A sum over 512 MiB by all threads, the best of 5.
double cpu_read_rate() {
  constexpr int64_t kWords = 64 << 20;
  const std::shared_ptr<std::byte> memory = huge_memory(kWords * 8);
  auto* words = reinterpret_cast<uint64_t*>(memory.get());
  std::fill(words, words + kWords, 1);
  double best = 0;
  std::atomic<uint64_t> all = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = seconds();
    on_threads(at::get_num_threads(), [&](const Team& team) {
      uint64_t sum[8] = {};
      const int64_t end = team.end(kWords / 8) * 8;
      for (int64_t i = team.begin(kWords / 8) * 8; i < end; i += 8)
        for (int j = 0; j < 8; ++j) sum[j] ^= words[i + j];
      for (const uint64_t part : sum) all += part;
    });
    best = std::max(best, double(kWords * 8) / (seconds() - begin));
  }
  return best;
}

Fidelity fidelity_of(
    const at::Tensor& log_p, const at::Tensor& logits, const std::vector<int32_t>& tokens
) {
  const int64_t n = logits.size(0);
  Fidelity f;
  for (int64_t i = 0; i < n; ++i) {
    const at::Tensor p = log_p[i].to(at::kDouble);
    const at::Tensor q = at::log_softmax(logits[i].to(at::kDouble), 0);
    f.kl += (p.exp() * (p - q)).sum().item<double>() / double(n);
    f.same_top1 += double(p.argmax().item<int64_t>() == q.argmax().item<int64_t>()) / double(n);
    f.kl = std::max(f.kl, 0.0);  // rounding alone can make it negative
    if (i + 1 < n) f.nats -= q[tokens[size_t(i) + 1]].item<double>() / double(n - 1);
  }
  return f;
}

bool BenchGenerateReport::exact() const {
  if (options.peer.empty()) return own.kl < 0.03;
  return own.kl <= 1.05 * peer.kl + 1e-6;
}

BenchGenerateReport bench_generate(
    const BenchGenerateOptions& o, const std::function<void(const std::string&)>& tell
) {
  check_options(o);
  const c10::NoGradGuard no_graph;
  const bool one = o.streams == std::vector<int64_t>{1};
  const bool on_cpu = find_device(o.device).is_cpu();
  HORNER_CHECK(
      o.peer.empty() || (one && on_cpu), "--peer: llama.cpp is timed with one stream on a CPU"
  );
  HORNER_CHECK(o.beside.empty() || (one && on_cpu), "--beside: with one stream on a CPU");
  if (!one || !on_cpu) return bench_streams(o, tell);
  const Say say = tell ? tell : [](const std::string&) {};
  BenchGenerateReport report;
  report.options = o;
  report.device = describe_device(at::kCPU), report.threads = at::get_num_threads();
  say("load");
  const double begin = seconds();
  const LoadedModel model = open_model(o.model, {.dequantise = o.weights != "auto"});
  const std::unique_ptr<CpuDecoder> decoder = cpu_decoder(model, o.weights);
  report.load_seconds = seconds() - begin;
  report.decoder = decoder->name(), report.weight_bytes = double(decoder->weight_bytes());
  const int64_t longest = *std::max_element(o.context.begin(), o.context.end());
  const std::vector<int32_t> tokens =
      bench_tokens(o, model, std::max(longest + o.steps, o.kl_tokens));
  HORNER_CHECK(
      o.peer.empty() || model.gguf, "--peer: llama.cpp reads GGUF files, and {} is none", o.model
  );
  const Scratch scratch;
  time_rounds(model.source, *decoder, tokens, scratch, say, report);
  say("KL");
  measure_fidelity(*decoder, tokens, scratch, say, report);
  say("read rate");
  report.read_rate = cpu_read_rate();
  return report;
}

Json BenchGenerateReport::json() const {
  const auto fidelity = [](const Fidelity& f) {
    return Json{{"kl", f.kl}, {"same_top1", f.same_top1}, {"nats", f.nats}};
  };
  Json all = {
      {"options", to_json(options)},
      {"model", fs::path(options.model).filename()},
      {"device", device},
      {"threads", threads},
      {"decoder", decoder},
      {"load_seconds", load_seconds},
      {"memory", memory},
      {"weight_bytes", weight_bytes},
      {"read_rate", read_rate},
      {"fp32_nats", fp32_nats},
      {"horner", fidelity(own)},
      {"exact", exact()}};
  if (!options.peer.empty()) {
    all["peer"] = fidelity(peer);
    all["peer"]["version"] = peer_version;
    all["peer"]["memory"] = peer_memory;
  }
  for (const Beside& one : beside) {
    all["beside"].push_back(fidelity(one.fidelity));
    all["beside"].back()["weights"] = one.weights;
    all["beside"].back()["weight_bytes"] = one.bytes;
  }
  for (const StreamsRow& row : streams) {
    all["streams"].push_back(
        {{"streams", row.streams},
         {"context", row.context},
         {"invariant", row.invariant},
         {"prompt", row.prompt},
         {"text", row.text},
         {"bytes_per_step", row.bytes},
         {"state_bytes", row.state_bytes}}
    );
  }
  for (const GenerateRow& row : rows) {
    Json one = {
        {"context", row.context},
        {"prompt", row.prompt},
        {"text", row.text},
        {"bytes_per_token", row.bytes},
        {"state_bytes", row.state_bytes}};
    if (row.peer_text > 0) one["peer_prompt"] = row.peer_prompt, one["peer_text"] = row.peer_text;
    all["rows"].push_back(one);
  }
  return all;
}

}  // namespace horner
