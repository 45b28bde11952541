#include "lab/runs.h"

#include <filesystem>
#include <thread>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "lab/pool.h"

namespace horner {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// What a program said last.
std::string last_line(const std::string& path) {
  std::string text = read_file(path);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t start = text.find_last_of("\r\n");
  return start == text.npos ? text : text.substr(start + 1);
}

RunOutcome run_one(const TrainOptions& options, const TrainTell& tell) {
  try {
    return {train(options, tell), ""};
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    return {{}, first_line(error.what())};
  }
}

std::string folder_of(const TrainOptions& o) { return o.out + "/" + o.name; }
bool ended(const TrainOptions& o) { return std::filesystem::exists(folder_of(o) + "/result.json"); }

// As `horner train` programs, each with its share of the cores.
void run_programs(
    const std::vector<TrainOptions>& runs,
    std::vector<RunOutcome>& outcomes,
    size_t at_once,
    const RunsTell& tell
) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Job> jobs;
  std::vector<size_t> which;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (ended(runs[i])) continue;
    make_folder(runs[i].out + "/plan");
    const std::string base = runs[i].out + "/plan/" + runs[i].name;
    write_file(base + ".toml", to_toml(runs[i]));
    const std::string threads =
        fmt::format("OMP_NUM_THREADS={}", std::max<size_t>(1, cores / at_once));
    jobs.push_back({{program, "train", "--config", base + ".toml"}, {threads}, base + ".log"});
    which.push_back(i);
  }
  const size_t before = runs.size() - jobs.size();
  const std::vector<int> codes = run_jobs(jobs, at_once, [&] {
    size_t finished = before;
    for (const size_t i : which) finished += ended(runs[i]) ? 1 : 0;
    tell(finished, fmt::format("{} at a time", at_once));
  });
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (codes[j] != 0) outcomes[which[j]].failure = last_line(jobs[j].log);
  }
}

}  // namespace

std::vector<RunOutcome> run_all(
    const std::vector<TrainOptions>& runs, int64_t at_once, const RunsTell& tell
) {
  std::vector<RunOutcome> outcomes(runs.size());
  if (at_once > 1) run_programs(runs, outcomes, size_t(at_once), tell);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!outcomes[i].failure.empty()) continue;
    outcomes[i] = run_one(runs[i], [&](const TrainTick& t) {
      tell(i, fmt::format("{} step {}/{} loss {:.3f}", runs[i].name, t.step, t.steps, t.loss));
    });
    tell(i + 1, runs[i].name);
  }
  return outcomes;
}

}  // namespace horner
