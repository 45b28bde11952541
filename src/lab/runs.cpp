#include "lab/runs.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "lab/mps.h"
#include "lab/pool.h"
#include "lab/run_threads.h"

namespace horner {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The last line that a program printed.
std::string last_line(const std::string& path) {
  std::string text = read_file(path);
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text.substr(text.find_last_of("\r\n") + 1);
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

// How a program that failed ended, in one line; never empty.
std::string failure(const JobEnd& end, const std::string& log) {
  if (end.signal != 0)
    return fmt::format("killed by signal {} ({})", end.signal, strsignal(end.signal));
  const std::string line = last_line(log);
  return line.empty() ? fmt::format("ended with exit code {} and without a word", end.code) : line;
}

RunOutcome read_outcome(const TrainOptions& run) {
  if (!std::filesystem::exists(folder_of(run))) return {{}, "its folder is gone"};
  if (!finished(run)) return {{}, "left no result"};
  return {read_result(folder_of(run)), ""};
}

using Work = std::vector<const TrainOptions*>;

std::vector<RunOutcome> run_here(const Work& work, const RunsTell& tell, RunsTick tick) {
  std::vector<RunOutcome> outcomes(work.size());
  for (size_t i = 0; i < work.size(); ++i) {
    if (interrupted()) throw InterruptedError("stopped; the same command goes on");
    try {
      outcomes[i].result = train(*work[i], [&](const TrainTick& t) {
        RunsTick now = tick;
        now.steps_done += t.step;
        now.what = fmt::format("{} step {} loss {:.3f}", work[i]->name, t.step, t.loss);
        if (tell) tell(now);
      });
    } catch (const InterruptedError&) {
      throw;
    } catch (const std::exception& error) {
      outcomes[i].failure = first_line(error.what());
    }
    tick.steps_done += work[i]->schedule.steps;
    ++tick.runs_done;
  }
  return outcomes;
}

Job job_of(
    const TrainOptions& run, const std::string& program, const std::vector<std::string>& environment
) {
  make_folder(run.out + "_plan");  // beside the runs
  const std::string base = run.out + "_plan/" + run.name;
  write_file(base + ".toml", to_toml(run));
  return {{program, "train", "--config", base + ".toml"}, environment, base + ".log"};
}

// Progress of runs in other processes, from what they have written.
RunsTick tick_of(const Work& work, RunsTick now) {
  std::vector<std::string> busy;
  for (const TrainOptions* run : work) {
    const bool ended = finished(*run);
    const int64_t steps = ended ? run->schedule.steps : steps_so_far(folder_of(*run));
    now.steps_done += steps;
    now.runs_done += ended ? 1 : 0;
    if (!ended && steps > 0) busy.push_back(fmt::format("{} {}", run->name, steps));
  }
  now.what = fmt::format("{}", fmt::join(busy, ", "));
  return now;
}

std::vector<RunOutcome> run_programs(
    const Work& work,
    size_t at_once,
    const std::string& program,
    const RunsTell& tell,
    const RunsTick& tick
) {
  const size_t gpus = std::max<size_t>(1, size_t(at::detail::getCUDAHooks().deviceCount()));
  bool any_gpu = false;
  for (const TrainOptions* run : work) any_gpu = any_gpu || find_device(run->device).is_cuda();
  const std::string threads =
      fmt::format("OMP_NUM_THREADS={}", std::max<size_t>(1, cores() / at_once));
  std::vector<Job> jobs;
  const auto run = [&](const std::vector<std::string>& shared) {
    jobs.clear();
    for (size_t i = 0; i < work.size(); ++i) {
      std::vector<std::string> environment = shared;
      environment.push_back(threads);
      if (find_device(work[i]->device).is_cuda())
        environment.push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", i % gpus));
      jobs.push_back(job_of(*work[i], program, environment));
    }
    return run_jobs(jobs, at_once, [&] {
      if (tell) tell(tick_of(work, tick));
    });
  };
  std::vector<JobEnd> ends;
  bool again = false;
  {
    const Mps mps(any_gpu && at_once > gpus);
    ends = run(mps.environment());
    const auto failed = [](const JobEnd& end) { return !end.well(); };
    again = mps.runs() && std::all_of(ends.begin(), ends.end(), failed);
  }
  if (again) ends = run({});  // the service may start and still not serve
  std::vector<RunOutcome> outcomes;
  for (size_t i = 0; i < work.size(); ++i)
    outcomes.push_back(
        ends[i].well() ? read_outcome(*work[i]) : RunOutcome{{}, failure(ends[i], jobs[i].log)}
    );
  return outcomes;
}

}  // namespace

std::string folder_of(const TrainOptions& run) { return run.out + "/" + run.name; }

bool finished(const TrainOptions& run) {
  return std::filesystem::exists(folder_of(run) + "/result.json");
}

std::vector<RunOutcome> run_all(
    const std::vector<TrainOptions>& runs,
    size_t at_once,
    const std::string& program,
    const RunsTell& tell,
    Runs how
) {
  Work work;
  RunsTick tick{};
  for (const TrainOptions& run : runs) {
    if (finished(run)) continue;
    work.push_back(&run);
    tick.steps += run.schedule.steps;
    ++tick.runs;
  }
  std::vector<RunOutcome> now(work.size());
  const auto run_some = [&](const std::vector<size_t>& places, const auto& run) {
    if (places.empty()) return;
    Work some;
    for (const size_t place : places) some.push_back(work[place]);
    const std::vector<RunOutcome> done = run(some);
    for (size_t i = 0; i < places.size(); ++i) now[places[i]] = done[i];
    for (const TrainOptions* one : some) tick.steps_done += one->schedule.steps;
    tick.runs_done += int64_t(some.size());
  };
  std::vector<size_t> threads, others;
  for (size_t i = 0; i < work.size(); ++i) {
    const bool thread =
        at_once > 1 && work.size() > 1 && how == Runs::best && refuses_thread(*work[i]).empty();
    (thread ? threads : others).push_back(i);
  }
  run_some(threads, [&](const Work& some) { return run_threads(some, at_once, tell, tick); });
  run_some(others, [&](const Work& some) {
    return at_once > 1 && !program.empty() ? run_programs(some, at_once, program, tell, tick)
                                           : run_here(some, tell, tick);
  });
  std::vector<RunOutcome> outcomes;
  size_t next = 0;  // of `work`, which has the order of `runs`
  for (const TrainOptions& run : runs) {
    const bool ran = next < work.size() && work[next] == &run;
    outcomes.push_back(ran ? now[next++] : read_outcome(run));
  }
  return outcomes;
}

}  // namespace horner
