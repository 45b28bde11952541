// Steps per second of several small runs at once on one device, in the way that compare and reproduce run them.
#pragma once

#include <functional>

#include "core/options.h"

namespace horner {

struct BenchRunsOptions {
  std::string task = "mqar:T=128,pairs=24,vocabulary=256";
  std::vector<std::string> mixer = {"softmax", "linear"};
  std::vector<int64_t> runs = {1, 4, 8, 16};
  int64_t D = 128;
  int64_t layers = 2;
  int64_t B = 128;
  int64_t steps = 1000;
  bool programs = false;
  std::string device = "auto";
  std::string folder = "/tmp/horner_bench_runs";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("task", task, "task or task:settings");
    visit("mixer", mixer, "mixers that the runs take in turn");
    visit("runs", runs, "runs at once");
    visit("D", D, "model dim");
    visit("layers", layers, "layers L");
    visit("B", B, "examples of a step");
    visit("steps", steps, "steps of each run");
    visit("programs", programs, "a program for each run, also where threads of one would do");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("folder", folder, "where the runs are written and deleted");
  }
};

struct BenchRunsRow {
  int64_t runs = 0;
  double start = 0;             // seconds until the last run has its first steps
  double steps_per_second = 0;  // of all runs together, while all of them run
  double seconds = 0;           // of everything
  std::string failure = {};
};
struct BenchRunsReport {
  std::string device;
  BenchRunsOptions options;
  std::vector<BenchRunsRow> rows;
  Json json() const;
};
BenchRunsReport bench_runs(
    const BenchRunsOptions& options,
    const std::string& program,
    const std::function<void(const std::string&)>& tell = {}
);

}  // namespace horner
