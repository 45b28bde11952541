#include "lab/compare.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "lab/explain.h"
#include "lab/pool.h"
#include "lab/verdict.h"
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

std::string folder_of(const CompareRun& run, const Task& task) {
  const TrainOptions o = resolve(run.options, task);
  return o.out + "/" + run_name(o);
}

// The step of the last line of metrics.jsonl: how far a run in another process is.
int64_t steps_so_far(const std::string& folder) {
  std::ifstream file(folder + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const std::streamoff size = file.tellg(), tail = std::min<std::streamoff>(size, 4096);
  file.seekg(size - tail);
  std::string text(static_cast<size_t>(tail), ' ');
  file.read(text.data(), tail);
  const size_t at = text.rfind("{\"step\":");
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + 8);
}

std::string last_line(const std::string& path) {
  std::string text = read_file(path);
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

size_t jobs_at_once(const CompareOptions& o, size_t runs) {
  if (o.jobs > 0) return size_t(o.jobs);
  if (o.device.find(':') != std::string::npos) return 1;
  const size_t places = find_device(o.device).is_cuda()
                            ? size_t(std::max(1, int(at::detail::getCUDAHooks().deviceCount())))
                            : std::max(1u, std::thread::hardware_concurrency());
  return std::min(places, runs);
}

struct Work {
  CompareRun* run;
  std::string folder;
};

void run_here(const std::vector<Work>& work, const CompareTell& tell, CompareTick tick) {
  const int64_t steps = work.empty() ? 0 : work[0].run->options.schedule.steps;
  for (const Work& w : work) {
    if (interrupted()) throw InterruptedError("stopped; the same command goes on");
    const std::string what =
        fmt::format("{} lr {:g} seed {}", w.run->mixer, w.run->lr, w.run->seed);
    try {
      w.run->result = train(w.run->options, [&](const TrainTick& t) {
        tick.what = fmt::format("{} step {} loss {:.3f}", what, t.step, t.loss);
        CompareTick now = tick;
        now.steps_done += t.step;
        if (tell) tell(now);
      });
    } catch (const InterruptedError&) {
      throw;
    } catch (const std::exception& error) {
      const std::string line = error.what();
      w.run->failure = line.substr(0, line.find('\n'));
    }
    tick.steps_done += steps;
    ++tick.runs_done;
  }
}

void run_programs(
    const std::vector<Work>& work,
    size_t at_once,
    const std::string& program,
    const std::string& out,
    const CompareTell& tell,
    CompareTick tick
) {
  const bool gpu = find_device(work[0].run->options.device).is_cuda();
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  make_folder(out + "/plan");
  std::vector<Job> jobs;
  for (size_t i = 0; i < work.size(); ++i) {
    const std::string base = out + "/plan/" + fs::path(work[i].folder).filename().string();
    write_file(base + ".toml", to_toml(work[i].run->options));
    Job job{{program, "train", "--config", base + ".toml"}, {}, base + ".log"};
    if (gpu) {
      const int gpus = std::max(1, int(at::detail::getCUDAHooks().deviceCount()));
      job.environment.push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", int(i) % gpus));
    } else {
      job.environment.push_back(
          fmt::format("OMP_NUM_THREADS={}", std::max<size_t>(1, cores / at_once))
      );
    }
    jobs.push_back(job);
  }
  const std::vector<int> codes = run_jobs(jobs, at_once, [&] {
    CompareTick now = tick;
    std::vector<std::string> busy;
    for (const Work& w : work) {
      const bool ended = fs::exists(w.folder + "/result.json");
      const int64_t steps = ended ? w.run->options.schedule.steps : steps_so_far(w.folder);
      now.steps_done += steps;
      now.runs_done += ended ? 1 : 0;
      if (!ended && steps > 0) busy.push_back(fmt::format("{} {}", w.run->mixer, steps));
    }
    now.what = fmt::format("{}", fmt::join(busy, ", "));
    if (tell) tell(now);
  });
  for (size_t i = 0; i < work.size(); ++i) {
    if (codes[i] != 0) {
      work[i].run->failure = last_line(jobs[i].log);
      continue;
    }
    work[i].run->result = train(work[i].run->options);  // reads it
  }
}

ModelOptions model_of(
    const CompareOptions& o, const Task& task, const std::string& mixer, int64_t D
) {
  return resolve(one_run(o, mixer, D, o.optim.lr, o.seed), task).model;
}

void measure(CompareResult& r, const Task& task, const CompareTell& tell) {
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
void look(CompareResult& r, const Task& task) {
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
  schedule.steps = 500;
  train.target = 0.995;
  eval.every = 100;
}

std::vector<CompareRun> plan(const CompareOptions& o, std::map<std::string, Budget>& budgets) {
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
    const auto [name, settings] = split_mixer(mixer);
    find_mixer(name).make(o.model.D, find_mixer(name).parse(settings));  // or says what is wrong
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

CompareResult compare(
    const CompareOptions& options, const std::string& program, const CompareTell& tell
) {
  const auto start = std::chrono::steady_clock::now();
  CompareResult r;
  r.options = options;
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

  std::vector<Work> work;
  for (CompareRun& run : r.runs) {
    const std::string folder = folder_of(run, *task);
    if (fs::exists(folder + "/result.json")) {
      run.result = train(run.options);
    } else {
      work.push_back({&run, folder});
    }
  }
  const int64_t n = int64_t(work.size());
  const CompareTick tick{0, n * options.schedule.steps, 0, n, ""};
  const size_t at_once = jobs_at_once(options, work.size());
  if (program.empty() || at_once <= 1) {
    run_here(work, tell, tick);
  } else if (!work.empty()) {
    run_programs(work, at_once, program, options.out, tell, tick);
  }
  sum_up(r);
  for (CompareRow& row : r.rows)
    row.budget_mismatch = options.iso == "none" ? 0 : budgets[row.mixer].mismatch();
  measure(r, *task, tell);
  look(r, *task);
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
    const std::string path = folder + "/result.json";
    if (!fs::exists(path))
      throw DataError(
          "{}: holds neither compare.json nor the result.json of a finished run", folder
      );
    CompareRun run;
    run.result = TrainResult::from(parse_json(read_file(path), path));
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
