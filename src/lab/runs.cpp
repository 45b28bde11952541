#include "lab/runs.h"

#include <ATen/Context.h>

#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "lab/pool.h"

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

RunOutcome read_outcome(const TrainOptions& run) {
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

Job job_of(const TrainOptions& run, const std::string& program, const std::string& environment) {
  make_folder(run.out + "_plan");  // beside the runs
  const std::string base = run.out + "_plan/" + run.name;
  write_file(base + ".toml", to_toml(run));
  return {{program, "train", "--config", base + ".toml"}, {environment}, base + ".log"};
}

std::vector<RunOutcome> run_programs(
    const Work& work,
    size_t at_once,
    const std::string& program,
    const RunsTell& tell,
    const RunsTick& tick
) {
  const int gpus = std::max(1, int(at::detail::getCUDAHooks().deviceCount()));
  std::vector<Job> jobs;
  for (size_t i = 0; i < work.size(); ++i) {
    const bool gpu = find_device(work[i]->device).is_cuda();
    jobs.push_back(job_of(
        *work[i],
        program,
        gpu ? fmt::format("CUDA_VISIBLE_DEVICES={}", int(i) % gpus)
            : fmt::format("OMP_NUM_THREADS={}", std::max<size_t>(1, cores() / at_once))
    ));
  }
  const std::vector<int> codes = run_jobs(jobs, at_once, [&] {
    RunsTick now = tick;
    std::vector<std::string> busy;
    for (const TrainOptions* run : work) {
      const bool ended = finished(*run);
      const int64_t steps = ended ? run->schedule.steps : steps_so_far(folder_of(*run));
      now.steps_done += steps;
      now.runs_done += ended ? 1 : 0;
      if (!ended && steps > 0) busy.push_back(fmt::format("{} {}", run->name, steps));
    }
    now.what = fmt::format("{}", fmt::join(busy, ", "));
    if (tell) tell(now);
  });
  std::vector<RunOutcome> outcomes;
  for (size_t i = 0; i < work.size(); ++i)
    outcomes.push_back(
        codes[i] == 0 ? read_outcome(*work[i]) : RunOutcome{{}, last_line(jobs[i].log)}
    );
  return outcomes;
}

}  // namespace

std::string folder_of(const TrainOptions& run) { return run.out + "/" + run.name; }

bool finished(const TrainOptions& run) {
  return std::filesystem::exists(folder_of(run) + "/result.json");
}

TrainResult read_result(const std::string& folder) {
  const std::string path = folder + "/result.json";
  try {
    TrainResult result = TrainResult::from(parse_json(read_file(path), path));
    result.folder = folder;  // it may have been moved
    return result;
  } catch (const Json::exception&) {  // a field is missing, or of another type
    throw DataError("{}: was written by another version, or not by horner train", path);
  }
}

std::vector<RunOutcome> run_all(
    const std::vector<TrainOptions>& runs,
    size_t at_once,
    const std::string& program,
    const RunsTell& tell
) {
  Work work;
  RunsTick tick{};
  for (const TrainOptions& run : runs) {
    if (finished(run)) continue;
    work.push_back(&run);
    tick.steps += run.schedule.steps;
    ++tick.runs;
  }
  const std::vector<RunOutcome> now = program.empty() || at_once <= 1
                                          ? run_here(work, tell, tick)
                                          : run_programs(work, at_once, program, tell, tick);
  std::vector<RunOutcome> outcomes;
  size_t next = 0;  // of `work`, which has the order of `runs`
  for (const TrainOptions& run : runs) {
    const bool ran = next < work.size() && work[next] == &run;
    outcomes.push_back(ran ? now[next++] : read_outcome(run));
  }
  return outcomes;
}

}  // namespace horner
