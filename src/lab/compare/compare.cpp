#include "lab/compare/compare.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/folder_lock.h"
#include "core/interrupt.h"
#include "lab/compare/verdict.h"
#include "lab/explain/explain.h"
#include "lab/pool.h"
#include "lab/run_threads.h"
#include "model/size.h"
#include "tasks/example.h"
#include "train/checkpoint.h"
#include "train/cost.h"
#include "train/duration.h"
#include "train/evaluate.h"
#include "train/limits.h"
#include "train/resolve.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPlace = "MIXER";
constexpr int64_t kMostRuns = 10000, kMostSeed = int64_t{1} << 62;

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
  if (o.iso == "params") return parameters_of(run.model);
  return cost_of(run, task).forward_flops_per_token;
}

size_t jobs_at_once(const CompareOptions& o, const std::vector<TrainOptions>& runs) {
  if (o.jobs > 0) return size_t(o.jobs);
  const bool gpu = find_device(o.device).is_cuda();
  const auto gpus = size_t(at::detail::getCUDAHooks().deviceCount());
  if (gpu && gpus == 1) return runs_on_gpu(runs);
  if (o.device.find(':') != std::string::npos) return 1;
  return std::min(gpu ? gpus : cores(), runs.size());
}

void run(CompareResult& r, const std::string& program, const Task& task, const RunsTell& tell) {
  std::vector<TrainOptions> runs;
  const Json data = data_of(task);
  for (CompareRun& run : r.runs) {
    run.options.name = run_name(resolve(run.options, task), data);
    runs.push_back(run.options);
  }
  r.runs_read = std::count_if(runs.begin(), runs.end(), finished);
  const auto outcomes = run_all(runs, jobs_at_once(r.options, runs), program, tell);
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

bool is_softmax(const CompareRow& row) { return MixerSpec::parse(row.settings).name == "softmax"; }

// Crossovers are against the softmax of the table, or against the default one where the table has none.
void measure(CompareResult& r, const Task& task, const RunsTell& tell) {
  const CompareOptions& o = r.options;
  std::vector<CompareRow*> rows;
  std::vector<ModelOptions> models;
  for (CompareRow& row : r.rows) {
    if (row.scores.empty()) continue;
    rows.push_back(&row);
    models.push_back(model_of(o, task, row.settings, row.D));
  }
  const auto shown = [](const CompareRow* row) { return is_softmax(*row); };
  const size_t softmax = std::find_if(rows.begin(), rows.end(), shown) - rows.begin();
  if (softmax == rows.size()) models.push_back(model_of(o, task, "softmax", o.model.D));
  const int64_t total = kSpeedRounds * int64_t(models.size());
  const auto speeds =
      measure_speeds(models, o.speed_lengths, find_device(o.device), [&](int round, size_t m) {
        if (!tell) return;
        const int64_t done = round * int64_t(models.size()) + int64_t(m);
        const std::string name = m < rows.size() ? rows[m]->mixer : "softmax";
        tell({done, total, done, total, "speed of " + name});
      });
  for (size_t m = 0; m < rows.size(); ++m) {
    CompareRow& row = *rows[m];
    row.speed = speeds[m];
    if (is_softmax(row) || !make_model(models[m], 0)->causal()) continue;
    row.memory_crossover = double(memory_crossover(models[m], models[softmax]));
    row.time_crossover = decode_crossover(speeds[m], speeds[softmax]);
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

// What can be checked without a task or a model.
void check(const CompareOptions& o) {
  HORNER_CHECK(!o.mixers.empty(), "compare takes at least one mixer");
  HORNER_CHECK(o.seeds >= 1, "seeds must be at least 1, got {}", o.seeds);
  HORNER_CHECK(o.jobs >= 0, "jobs must be at least 0, got {}", o.jobs);
  HORNER_CHECK(o.seed <= kMostSeed, "seed must be at most {}, got {}", kMostSeed, o.seed);
  const size_t rates = std::max<size_t>(1, o.lr_grid.size());
  const double count = double(o.seeds) * double(o.mixers.size()) * double(rates);
  HORNER_CHECK(
      count <= kMostRuns,
      "{} seeds of {} mixers with {} learning rates are {:.10g} runs; at most {}",
      o.seeds,
      o.mixers.size(),
      rates,
      count,
      kMostRuns
  );
  HORNER_CHECK(
      std::count(o.model.pattern.begin(), o.model.pattern.end(), kPlace) > 0,
      "model.pattern must hold {} where the mixers differ, as in conv,{}",
      kPlace,
      kPlace
  );
  std::set<std::string> named;
  for (const std::string& mixer : o.mixers)
    HORNER_CHECK(named.insert(mixer).second, "mixer {} is named twice", mixer);
  HORNER_CHECK(!o.out.empty(), "out must name a folder, as in runs/compare; it is empty");
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
  check(o);
  const std::shared_ptr<Task> task = make_task(o.task);
  const at::Device device = find_device(o.device);
  check_size(o.model);
  for (const int64_t T : o.speed_lengths) check_length(o.model, T, device, "speed_lengths");
  check_memory(
      resolve(one_run(o, o.mixers[0], o.model.D, o.optim.lr, o.seed), *task), task->shape()
  );
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

CompareTime time_of(const CompareOptions& options, const std::vector<CompareRun>& runs) {
  const std::shared_ptr<Task> task = make_task(options.task);
  CompareTime time;
  std::vector<TrainOptions> all;
  for (const CompareRun& run : runs) all.push_back(run.options);
  time.at_once = jobs_at_once(options, all);
  const bool cpu = find_device(options.device).is_cpu();
  const int before = at::get_num_threads();
  if (cpu) at::set_num_threads(std::max(1, int(cores() / time.at_once)));
  for (const CompareRun& run : runs) {
    if (!time.run.contains(run.mixer)) {
      const TrainOptions resolved = resolve(run.options, *task);
      time.run[run.mixer] = duration_of(resolved, *task, cost_of(resolved, *task)).total;
    }
    time.all += time.run[run.mixer];
  }
  at::set_num_threads(before);
  if (cpu) time.all /= double(time.at_once);  // runs on one GPU slow each other down
  return time;
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
  r.task = describe_task(*task, options.task);
  r.baselines = baselines_in(r.task);
  r.device = describe_device(find_device(options.device));
  r.precision = resolved.train.precision;

  make_folder(options.out);
  const FolderLock lock(options.out);
  run(r, program, *task, tell);
  const EndOnInterrupt at_once("horner: stopped after the runs, which the same command only reads\n"
  );
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
  r.options.seeds = int64_t(seeds.size());
  r.options.seed = *seeds.begin();
  const std::string told = folders[0] + "/task.json";
  r.task = fs::exists(told) ? read_from(told, [](const Json& json) { return json; })
                            : describe_task(*make_task(r.options.task), r.options.task);
  r.metric = r.runs[0].result.metric;
  r.smaller = smaller_is_better(r.metric);
  r.baselines = baselines_in(r.task);
  r.precision = r.runs[0].options.train.precision;
  sum_up(r);
  r.verdict = verdict(r);
  r.warnings = warnings(r);
  return r;
}

}  // namespace horner
