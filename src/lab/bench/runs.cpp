#include "lab/bench/runs.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/check.h"
#include "core/device.h"
#include "core/file.h"
#include "lab/runs.h"
#include "train/run_folder.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

double now_in_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

struct Point {
  double time, step;
};

std::vector<Point> curve_of(const std::string& folder) {
  std::vector<Point> points;
  for (const Json& line : read_metrics(folder)) {
    if (line.contains("train/loss")) points.push_back({line["time"], double(line["step"])});
  }
  return points;
}

// Steps that were done at `time`, between the points that were written.
double steps_at(const std::vector<Point>& points, double time) {
  for (size_t i = 1; i < points.size(); ++i) {
    const Point &a = points[i - 1], &b = points[i];
    if (time > b.time) continue;
    if (time <= a.time || b.time <= a.time) return a.step;
    return a.step + (b.step - a.step) * (time - a.time) / (b.time - a.time);
  }
  return points.empty() ? 0 : points.back().step;
}

BenchRunsRow measure(const BenchRunsOptions& o, int64_t count, const std::string& program) {
  std::error_code error;
  fs::remove_all(o.folder, error);
  std::vector<TrainOptions> runs;
  for (int64_t i = 0; i < count; ++i) {
    TrainOptions run;
    run.task = o.task;
    run.name = fmt::format("run_{}", i);
    run.out = o.folder;
    run.seed = i;
    run.device = o.device;
    run.model.pattern = {o.mixer[size_t(i) % o.mixer.size()]};
    run.model.D = o.D;
    run.model.layers = o.layers;
    run.schedule.steps = o.steps;
    run.train.batch = o.B;
    run.eval.every = 0;
    run.eval.examples = o.B;
    run.checkpoint.every = 0;
    run.log.every = 20;
    run.log.tensorboard = false;
    runs.push_back(run);
  }
  BenchRunsRow row;
  row.runs = count;
  const double start = now_in_seconds();
  const auto outcomes =
      run_all(runs, size_t(count), program, {}, o.programs ? Runs::programs : Runs::best);
  row.seconds = now_in_seconds() - start;
  double all_started = 0, first_ended = std::numeric_limits<double>::infinity();
  for (const RunOutcome& outcome : outcomes)
    if (!outcome.failure.empty()) row.failure = outcome.failure;
  std::vector<std::vector<Point>> curves;
  for (const TrainOptions& run : runs) {
    curves.push_back(curve_of(folder_of(run)));
    if (curves.back().size() < 2) continue;
    all_started = std::max(all_started, curves.back().front().time);
    first_ended = std::min(first_ended, curves.back().back().time);
  }
  row.start = all_started - start;
  double steps = 0;
  for (const auto& curve : curves)
    steps += steps_at(curve, first_ended) - steps_at(curve, all_started);
  if (first_ended > all_started) row.steps_per_second = steps / (first_ended - all_started);
  fs::remove_all(o.folder, error);
  fs::remove_all(o.folder + "_plan", error);
  return row;
}

}  // namespace

BenchRunsReport bench_runs(
    const BenchRunsOptions& o,
    const std::string& program,
    const std::function<void(const std::string&)>& tell
) {
  HORNER_CHECK(!o.mixer.empty() && !o.runs.empty(), "mixer and runs must name at least one");
  HORNER_CHECK(o.steps >= 60, "steps must be at least 60, got {}", o.steps);
  BenchRunsReport report{describe_device(find_device(o.device)), o, {}};
  for (const int64_t count : o.runs) {
    HORNER_CHECK(count >= 1, "runs must be at least 1, got {}", count);
    if (tell) tell(fmt::format("{} at once", count));
    report.rows.push_back(measure(o, count, program));
  }
  return report;
}

Json BenchRunsReport::json() const {
  Json json = {{"device", device}, {"options", to_json(options)}, {"rows", Json::array()}};
  for (const BenchRunsRow& r : rows) {
    json["rows"].push_back(
        {{"runs", r.runs},
         {"start", r.start},
         {"steps_per_second", r.steps_per_second},
         {"seconds", r.seconds},
         {"failure", r.failure}}
    );
  }
  return json;
}

}  // namespace horner
