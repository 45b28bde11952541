// Mixers side by side on equal terms: THE main job.
//
// Only the mixer differs: the other weights start equal (they depend only on seed and name), the data come in the same order,
// and seeds are paired. The learning rate of each mixer is chosen on validation (mean over seeds). The test is read once, by
// the chosen runs. A difference is the mean over seeds of the per-seed differences, with Student's 95 % interval and a paired
// bootstrap over test examples.
//
//   plan     mixers x learning rates x seeds                  each a run of train/train.h
//   run      one after the other, or several programs at once; finished ones are only read
//   sum up   rows, differences, crossovers, a verdict in words
#pragma once

#include "core/origin.h"
#include "lab/compare/budget.h"
#include "lab/compare/speed.h"
#include "lab/runs.h"
#include "lab/statistics.h"
#include "tasks/task.h"

namespace horner {

struct CompareOptions {
  std::vector<std::string> mixers = {
      "softmax:position.kind=none",
      "taylor:order=2,position.kind=none",
      "taylor:order=4,position.kind=none",
      "linear",
      "gla",
      "mlstm"};
  std::string task = "mqar";
  std::string out = "runs/compare";
  std::string iso = "none";
  int64_t seeds = 3;
  int64_t seed = 0;
  std::vector<double> lr_grid;
  std::string select = "mean";
  std::vector<int64_t> lengths;
  std::vector<int64_t> speed_lengths = {128, 512, 2048, 8192};
  int64_t jobs = 0;
  std::string device = "auto";
  ModelOptions model;
  OptimOptions optim;
  ScheduleOptions schedule;
  LoopOptions train;
  EvalOptions eval;

  CompareOptions();

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("task", task, "task or task:settings, as in mqar:T=128,pairs=24");
    visit("out", out, "folder of the report and of the runs");
    visit(
        "iso", iso, "what is made equal to the first mixer", {"none", "params", "state", "flops"}
    );
    visit("seeds", seeds, "paired seeds");
    visit("seed", seed, "the first of them");
    visit("lr_grid", lr_grid, "learning rates that each mixer may choose from; empty: optim.lr");
    visit(
        "select",
        select,
        "learning rate by the mean over seeds, or (biased) by the best seed",
        {"mean", "max"}
    );
    visit("lengths", lengths, "tokens at which the trained models are tested as well");
    visit("speed_lengths", speed_lengths, "tokens at which speed is measured; empty: not at all");
    visit("jobs", jobs, "runs at once; 0: one for each core, or as many as a GPU takes");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("model", model, "the model; MIXER in the pattern is what differs");
    visit("optim", optim, "AdamW");
    visit("schedule", schedule, "the learning rate");
    visit("train", train, "the loop");
    visit("eval", eval, "validation and test");
  }
};

struct CompareRun {
  std::string mixer;  // as the user wrote it: one name means one thing in every command
  double lr = 0;
  int64_t seed = 0;
  TrainOptions options;
  std::string failure;  // one line; empty: it finished
  TrainResult result;
};

struct CompareRow {
  std::string mixer;
  std::string settings;  // mixer and settings that ran; --iso may have changed them
  int64_t D = 0;
  double lr = 0;
  std::string lr_note;  // a winner at the edge of its grid
  std::vector<int64_t> seeds;
  std::vector<double> scores;  // the metric on the test, one per seed
  Interval score;
  std::map<std::string, Interval> slices;
  std::map<int64_t, Interval> lengths;
  std::vector<double> by_example, by_position;  // means over seeds
  struct Point {
    int64_t step;
    Interval valid;
  };
  std::vector<Point> curve;
  std::map<double, Interval> grid;  // validation's metric by learning rate
  int64_t parameters = 0, state_bytes = 0, steps = 0;
  double flops_per_token = 0, train_speed = 0, peak_bytes = 0, seconds = 0;
  double budget_mismatch = 0;  // remaining mismatch of what --iso makes equal
  std::vector<SpeedPoint> speed;
  // Against softmax: the length from which its state is smaller (0: always, -1: never, NaN: not measured), and the lengths
  // between which it starts to decode faster. Softmax itself has neither.
  double memory_crossover = std::numeric_limits<double>::quiet_NaN();
  Crossover time_crossover;
  int64_t failed = 0;  // runs
};

struct Difference {
  std::string a, b;    // a - b
  Interval seeds;      // over paired seeds
  Bootstrap examples;  // over test examples, of scores that are means over seeds
  // Whether the interval over seeds excludes 0; with one seed, or seeds that all differ by the same, the bootstrap's.
  bool shown() const;
};

// The first head of a trained mixer on the first test example, its first 128 tokens at most.
struct MixerMap {
  std::string mixer;
  int64_t T;
  std::vector<double> values;  // (T,T)
};

struct CompareResult {
  CompareOptions options;
  std::string metric;
  bool smaller = false;  // a smaller value is better
  Json task;
  std::vector<Baseline> baselines;
  std::string device;
  std::string precision;
  std::vector<CompareRun> runs;
  std::vector<CompareRow> rows;         // in the order asked for
  std::vector<Difference> differences;  // each row against the reference
  std::vector<MixerMap> maps;
  std::string reference;  // softmax if it takes part, else the first mixer
  std::string verdict;
  std::vector<std::string> warnings;
  double seconds = 0;
  int64_t runs_read = 0;  // that had finished before
  Origin origin;          // the command, commit, seeds, device and date that made it
  bool of_single_runs() const { return options.mixers.empty(); }  // of `horner train`, see `gather`
  Json json() const;
};

// The runs of a comparison, with what the budget solver says about each mixer.
std::vector<CompareRun> plan(const CompareOptions& options, std::map<std::string, Budget>& budgets);

// How long the runs would take: one of each mixer is timed for a few steps, with the threads that it would have. Speeds and
// maps, which are measured afterwards, are not counted.
struct CompareTime {
  std::map<std::string, double>
      run;         // seconds of one run, by mixer as the user wrote it; NaN: not measured
  double all = 0;  // of all runs, so many at once
  size_t at_once = 1;
};
CompareTime time_of(const CompareOptions& options, const std::vector<CompareRun>& runs);

// `program`: path of this program, to run several at once; empty: one after the other in this process.
CompareResult compare(
    const CompareOptions& options, const std::string& program, const RunsTell& tell
);

// Compares finished runs of `horner train` on one task: a row per pattern.
CompareResult gather(const std::vector<std::string>& folders);

// Rows and differences of runs that have ended.
void sum_up(CompareResult& result);

}  // namespace horner
