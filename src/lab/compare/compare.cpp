#include "lab/compare/compare.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "lab/compare/verdict.h"
#include "lab/explain/explain.h"
#include "lab/pool.h"
#include "train/checkpoint.h"
#include "train/cost.h"
#include "train/evaluate.h"
#include "train/resolve.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPlace = "MIXER";

std::vector<std::string> pattern_with(
    const std::vector<std::string>& pattern, const std::string& mixer
) {
  std::vector<std::string> result;
  for (const std::string& place : pattern) result.push_back(place == kPlace ? mixer : place);
  return result;
}

TrainOptions one_run(
    const CompareOptions& o, const std::string& mixer, int64_t D, double lr, int64_t seed
) {
  TrainOptions run;
  run.task = o.task;
  run.out = o.out + "/runs";
  run.seed = seed;
  run.device = o.device;
  run.model = o.model;
  run.model.D = D;
  run.model.pattern = pattern_with(o.model.pattern, mixer);
  run.optim = o.optim;
  run.optim.lr = lr;
  run.schedule = o.schedule;
  run.train = o.train;
  run.eval = o.eval;
  run.eval.lengths = o.lengths;
  run.log.tensorboard = false;
  run.checkpoint.keep = 1;
  return run;
}

double cost(const CompareOptions& o, const Task& task, const std::string& mixer, int64_t D) {
  const TrainOptions run = resolve(one_run(o, mixer, D, o.optim.lr, o.seed), task);
  if (o.iso == "state") return double(state_bytes(run.model, task.shape().T));
  if (o.iso == "params") return double(make_model(run.model, 0)->parameters_count());
  return cost_of(run, task).forward_flops_per_token;
}

size_t jobs_at_once(const CompareOptions& o, size_t runs) {
  if (o.jobs > 0) return size_t(o.jobs);
  if (o.device.find(':') != std::string::npos) return 1;
  const size_t places = find_device(o.device).is_cuda()
                            ? size_t(std::max(1, int(at::detail::getCUDAHooks().deviceCount())))
                            : cores();
  return std::min(places, runs);
}

void run(CompareResult& r, const std::string& program, const Task& task, const RunsTell& tell) {
  std::vector<TrainOptions> runs;
  for (CompareRun& run : r.runs) {
    run.options.name = run_name(resolve(run.options, task));
    runs.push_back(run.options);
  }
  const auto outcomes = run_all(runs, jobs_at_once(r.options, runs.size()), program, tell);
  for (size_t i = 0; i < runs.size(); ++i) {
    r.runs[i].failure = outcomes[i].failure;
    r.runs[i].result = outcomes[i].result;
  }
}

ModelOptions model_of(
    const CompareOptions& o, const Task& task, const std::string& mixer, int64_t D
) {
  return resolve(one_run(o, mixer, D, o.optim.lr, o.seed), task).model;
}

void measure(CompareResult& r, const Task& task, const RunsTell& tell) {
  const CompareOptions& o = r.options;
  const at::Device device = find_device(o.device);
  const ModelOptions softmax = model_of(o, task, "softmax", o.model.D);
  std::vector<SpeedPoint> base;
  if (!o.speed_lengths.empty()) base = measure_speed(softmax, o.speed_lengths, device);
  int64_t done = 0;
  for (CompareRow& row : r.rows) {
    if (row.scores.empty()) continue;
    if (tell)
      tell({done, int64_t(r.rows.size()), done, int64_t(r.rows.size()), "speed of " + row.mixer});
    ++done;
    const ModelOptions own = model_of(o, task, row.settings, row.D);
    const bool causal = make_model(own, 0)->causal();
    const bool other = row.settings != "softmax" || row.D != o.model.D;
    if (causal && other) row.memory_crossover = double(memory_crossover(own, softmax));
    if (o.speed_lengths.empty()) continue;
    row.speed = other ? measure_speed(own, o.speed_lengths, device) : base;
    if (causal && other) row.time_crossover = decode_crossover(row.speed, base);
  }
}

// From the first chosen run of each mixer that finished.
void add_maps(CompareResult& r, const Task& task) {
  const auto& pattern = r.options.model.pattern;
  const int64_t layer = std::find(pattern.begin(), pattern.end(), kPlace) - pattern.begin();
  const Batch batch = task.batch(Split::test, {0});
  for (const CompareRow& row : r.rows) {
    for (const CompareRun& run : r.runs) {
      if (run.mixer != row.mixer || run.lr != row.lr || !run.failure.empty()) continue;
      const at::Tensor input = batch.tokens.defined() ? batch.tokens : batch.features;
      const at::Tensor first = input.narrow(1, 0, std::min<int64_t>(128, input.size(1)));
      r.maps.push_back(
          {row.mixer, first.size(1), map_of_layer(*load_model(run.result.folder), layer, first)}
      );
      break;
    }
  }
}

}  // namespace

CompareOptions::CompareOptions() {
  model.pattern = {"conv:kind=dense", kPlace};
  model.mlp = "none";
  model.init = "torch";
  optim.beta2 = 0.999;
  optim.clip = 0;
  optim.lr = 5e-3;
  schedule.steps = 800;
  train.target = 0.995;
  eval.every = 100;
}

std::vector<CompareRun> plan(const CompareOptions& given, std::map<std::string, Budget>& budgets) {
  CompareOptions o = given;
  o.model.pattern = whole_specs(o.model.pattern);
  HORNER_CHECK(!o.mixers.empty(), "compare takes at least one mixer");
  HORNER_CHECK(o.seeds >= 1, "seeds must be at least 1, got {}", o.seeds);
  HORNER_CHECK(
      std::count(o.model.pattern.begin(), o.model.pattern.end(), kPlace) > 0,
      "model.pattern must hold {} where the mixers differ, as in conv,{}",
      kPlace,
      kPlace
  );
  for (size_t i = 0; i < o.mixers.size(); ++i) {
    HORNER_CHECK(
        std::find(o.mixers.begin(), o.mixers.begin() + int64_t(i), o.mixers[i]) ==
            o.mixers.begin() + int64_t(i),
        "mixer {} is named twice",
        o.mixers[i]
    );
  }
  const std::shared_ptr<Task> task = make_task(o.task);
  const double target = o.iso == "none" ? 0 : cost(o, *task, o.mixers[0], o.model.D);
  for (const std::string& mixer : o.mixers) {
    make_mixer(MixerSpec::parse(mixer), o.model.D);  // or says what is wrong
    Budget budget{mixer, o.model.D, target, target, 1};
    if (o.iso != "none" && mixer != o.mixers[0]) {
      budget = solve_budget(mixer, o.model.D, target, [&](const std::string& text, int64_t D) {
        return cost(o, *task, text, D);
      });
    }
    budgets[mixer] = budget;
  }
  const std::vector<double> grid = o.lr_grid.empty() ? std::vector<double>{o.optim.lr} : o.lr_grid;
  std::vector<CompareRun> runs;
  for (int64_t s = o.seed; s < o.seed + o.seeds; ++s) {
    for (const std::string& mixer : o.mixers) {
      for (const double lr : grid) {
        const Budget& b = budgets[mixer];
        runs.push_back({mixer, lr, s, one_run(o, b.mixer, b.D, lr, s), "", {}});
      }
    }
  }
  return runs;
}

std::vector<std::string> short_names(const std::vector<std::string>& mixers) {
  std::vector<MixerSpec> specs;
  for (const std::string& mixer : mixers) specs.push_back(MixerSpec::parse(mixer));
  std::vector<std::string> names;
  for (const MixerSpec& spec : specs) {
    MixerSpec own{spec.name, {}};
    for (const TypeSpec::Setting& setting : spec.settings) {
      int64_t has = 0, agrees = 0;  // how many have the setting, and how many with this value
      for (const MixerSpec& other : specs) {
        const std::optional<std::string> value = other.find(setting.name);
        has += value.has_value();
        agrees += value == setting.value;
      }
      if (agrees == 1 || agrees < has) own.settings.push_back(setting);
    }
    names.push_back(own.text());
  }
  const bool clear = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  return clear ? names : mixers;
}

CompareResult compare(
    const CompareOptions& options, const std::string& program, const RunsTell& tell
) {
  const auto start = std::chrono::steady_clock::now();
  CompareResult r;
  r.options = options;
  r.options.model.pattern = whole_specs(options.model.pattern);
  std::map<std::string, Budget> budgets;
  r.runs = plan(options, budgets);
  const std::shared_ptr<Task> task = make_task(options.task);
  const TrainOptions resolved = resolve(r.runs[0].options, *task);
  r.metric = task->metric();
  r.smaller = smaller_is_better(r.metric);
  r.task = {{"name", options.task}, {"T", task->shape().T}, {"options", task->options()}};
  r.baselines = task->baselines();
  r.device = describe_device(find_device(options.device));
  r.precision = resolved.train.precision;

  run(r, program, *task, tell);
  const std::vector<std::string> names = short_names(options.mixers);
  for (size_t i = 0; i < names.size(); ++i) {
    for (CompareRun& run : r.runs)
      if (run.mixer == options.mixers[i]) run.mixer = names[i];
  }
  sum_up(r);
  for (size_t i = 0; i < r.rows.size() && options.iso != "none"; ++i)
    r.rows[i].budget_mismatch = budgets[options.mixers[i]].mismatch();
  measure(r, *task, tell);
  add_maps(r, *task);
  r.verdict = verdict(r);
  r.warnings = warnings(r);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

CompareResult gather(const std::vector<std::string>& folders) {
  CompareResult r;
  r.options.mixers.clear();
  r.options.model.pattern.clear();
  std::set<int64_t> seeds;
  for (const std::string& folder : folders) {
    if (!fs::exists(folder + "/result.json"))
      throw DataError(
          "{}: holds neither compare.json nor the result.json of a finished run", folder
      );
    CompareRun run;
    run.result = read_result(folder);
    run.options = run.result.options;
    run.mixer = fmt::format("{}", fmt::join(run.options.model.pattern, " "));
    run.lr = run.options.optim.lr;
    run.seed = run.options.seed;
    if (r.runs.empty()) r.options.task = run.options.task;
    HORNER_CHECK(
        run.options.task == r.options.task,
        "{}: its task is {}, that of {} {}; a report takes runs of one task",
        folder,
        run.options.task,
        folders[0],
        r.options.task
    );
    seeds.insert(run.seed);
    const std::string env = folder + "/env.json";
    if (fs::exists(env)) r.device = parse_json(read_file(env), env).value("device", "");
    r.runs.push_back(run);
  }
  const std::shared_ptr<Task> task = make_task(r.options.task);
  r.options.seeds = int64_t(seeds.size());
  r.options.seed = *seeds.begin();
  r.metric = task->metric();
  r.smaller = smaller_is_better(r.metric);
  r.task = {{"name", r.options.task}, {"T", task->shape().T}, {"options", task->options()}};
  r.baselines = task->baselines();
  r.precision = r.runs[0].options.train.precision;
  sum_up(r);
  r.verdict = verdict(r);
  r.warnings = warnings(r);
  return r;
}

}  // namespace horner
