#include "lab/demo/demo.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "engine/load.h"
#include "lab/bundled_text.h"
#include "train/checkpoint.h"
#include "train/resolve.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSampleTokens = 160;
constexpr size_t kExcerpt = 32;

std::string name_of(const std::string& mixer) {
  std::string name = mixer;
  for (char& c : name) {
    if (std::string_view("abcdefghijklmnopqrstuvwxyz0123456789_").find(c) == std::string_view::npos)
      c = '-';
  }
  return name;
}

TrainOptions run_of(const DemoOptions& o, const std::string& mixer, const std::string& text) {
  TrainOptions run;
  run.task = fmt::format("byte:data={},T=128,valid=0.05,test=0", text);
  run.name = name_of(mixer);
  run.out = o.out + "/runs";
  run.device = "cpu";
  run.model.pattern = {mixer};
  run.model.layers = 3;
  run.model.D = 96;
  run.optim.lr = 4e-3;
  run.optim.beta2 = 0.99;
  run.schedule.steps = o.steps;
  run.schedule.warmup = std::min<int64_t>(30, o.steps / 4);
  run.schedule.final_lr = 0.05;
  run.train.batch = 8;
  const int64_t every = std::max<int64_t>(1, o.steps / std::max<int64_t>(1, o.samples));
  run.eval.every = every;
  run.eval.examples = 32;
  run.checkpoint.every = every;
  run.log.tensorboard = false;
  return run;
}

// Text after the prompt, the same for the same weights.
std::string sample(const LanguageModel& loaded, const std::string& prompt) {
  Engine engine(fastest_runner(loaded), loaded.tokenizer);
  const int64_t stream = engine.open();
  engine.feed(stream, prompt_tokens(loaded.tokenizer, prompt));
  engine.generate(stream, {.tokens = kSampleTokens});
  std::string text;
  while (!engine.idle()) {
    for (const Event& event : engine.work()) text += event.text;
  }
  return text;
}

// The samples of a run, kept in a file, since its old checkpoints are deleted.
class Samples {
 public:
  Samples(const TrainOptions& run, std::string prompt)
      : folder_(folder_of(run)),
        path_(run.out + "_samples_" + run.name + ".json"),
        prompt_(std::move(prompt)) {
    if (!fs::exists(path_)) return;
    const Json json = parse_json(read_file(path_), path_);
    if (!json.is_object() || json.value("prompt", "") != prompt_) return;
    for (const Json& one : json.value("samples", Json::array()))
      all_.push_back({one.value("step", int64_t{0}), one.value("text", "")});
  }

  // Writes a sample if there is a checkpoint without one; null: there is none.
  const DemoSample* look() {
    try {
      if (!fs::exists(folder_ + "/checkpoints")) return nullptr;
      const std::string checkpoint = model_folder(folder_);
      const int64_t step = step_of(checkpoint);
      if (!all_.empty() && all_.back().step >= step) return nullptr;
      all_.push_back({step, sample(load_language_model(checkpoint, at::kCPU), prompt_)});
    } catch (const DataError&) {
      return nullptr;  // it is being written, or was replaced by a newer one
    }
    Json list = Json::array();
    for (const DemoSample& one : all_) list.push_back({{"step", one.step}, {"text", one.text}});
    write_file(path_, Json{{"prompt", prompt_}, {"samples", list}}.dump(1) + "\n");
    return &all_.back();
  }
  const std::vector<DemoSample>& all() const { return all_; }

 private:
  std::string folder_, path_, prompt_;
  std::vector<DemoSample> all_;
};

// One stream reads T tokens, then writes. The fastest of four groups of tokens counts: other programs only slow it down.
DemoSpeed speed_at(const LanguageModel& loaded, int64_t T) {
  constexpr int64_t kGroups = 4, kTokens = 8;
  Engine engine(fastest_runner(loaded), loaded.tokenizer, {.piece = 512, .snapshot_every = 0});
  const int64_t stream = engine.open();
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < T; ++i) tokens.push_back(int32_t('a' + i * 7 % 26));
  engine.feed(stream, tokens);
  while (!engine.idle()) engine.work();
  GenerateOptions o;
  o.tokens = kGroups * kTokens + 1;
  o.ignore_end = true;
  engine.generate(stream, o);
  engine.work();  // the first token may allocate
  double best = 0;
  for (int64_t group = 0; group < kGroups; ++group) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kTokens; ++i) engine.work();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, double(kTokens) / std::max(time.count(), 1e-9));
  }
  return {T, engine.state_bytes(stream), best};
}

}  // namespace

void check_demo(const DemoOptions& o) {
  HORNER_CHECK(!o.mixers.empty(), "demo needs at least one mixer");
  HORNER_CHECK(o.steps >= 1, "steps must be at least 1, got {}", o.steps);
  HORNER_CHECK(o.samples >= 1, "samples must be at least 1, got {}", o.samples);
  HORNER_CHECK(!o.out.empty(), "out must name a folder, as in runs/demo; it is empty");
  const std::string text = find_text(o.text);
  for (const std::string& mixer : o.mixers) {
    const TrainOptions run = run_of(o, mixer, text);
    resolve(run, *make_task(run.task));
    make_mixer(MixerSpec::parse(mixer), run.model.D);
  }
}

DemoResult demo(
    const DemoOptions& o, const std::string& program, const DemoTold& told, const RunsTell& tell
) {
  check_demo(o);
  const std::string text = find_text(o.text);
  at::set_num_threads(1
  );  // the cores belong to the runs, and so small a model gains nothing by two
  std::vector<TrainOptions> runs;
  std::vector<Samples> samples;
  make_folder(o.out);
  for (const std::string& mixer : o.mixers) {
    runs.push_back(run_of(o, mixer, text));
    samples.emplace_back(runs.back(), o.prompt);
  }
  const auto look = [&] {
    for (size_t i = 0; i < runs.size(); ++i) {
      const DemoSample* found = samples[i].look();
      if (found && told) told(o.mixers[i], *found);
    }
  };
  const std::vector<RunOutcome> outcomes =
      run_all(runs, runs.size(), program, [&](const RunsTick& tick) {
        look();
        if (tell) tell(tick);
      });
  look();
  DemoResult result{o, {}, read_file(text).substr(0, kExcerpt)};
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!outcomes[i].failure.empty()) throw RunError("{}: {}", o.mixers[i], outcomes[i].failure);
    DemoMixer one{o.mixers[i], outcomes[i].result, samples[i].all(), {}};
    const LanguageModel loaded = load_language_model(folder_of(runs[i]), at::kCPU);
    for (const int64_t T : {128, 512, 2048, 8192}) one.speeds.push_back(speed_at(loaded, T));
    one.computed_by = fastest_runner(loaded)->name();
    result.mixers.push_back(std::move(one));
  }
  return result;
}

Json DemoResult::json() const {
  Json all = {{"options", to_json(options)}, {"mixers", Json::array()}};
  for (const DemoMixer& m : mixers) {
    Json one = {
        {"mixer", m.mixer},
        {"result", m.result.json()},
        {"samples", Json::array()},
        {"computed_by", m.computed_by},
        {"speeds", Json::array()}};
    for (const DemoSample& s : m.samples)
      one["samples"].push_back({{"step", s.step}, {"text", s.text}});
    for (const DemoSpeed& s : m.speeds)
      one["speeds"].push_back(
          {{"T", s.T},
           {"state_bytes", s.state_bytes},
           {"tokens_per_second", number_or_null(s.tokens_per_second)}}
      );
    all["mixers"].push_back(std::move(one));
  }
  return all;
}

}  // namespace horner
