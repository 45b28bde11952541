// The folder of a run: its settings, where it ran, what was measured.
//
//   config.toml (what differs from the defaults)  config.json (everything)  env.json
//   metrics.jsonl  tb/  checkpoints/  result.json (at the end)
#pragma once

#include <memory>

#include "io/tensorboard.h"
#include "train/train.h"

namespace horner {

// Task, pattern, seed, and a hash of everything that decides the outcome.
std::string run_name(const TrainOptions& options);

// What decides the outcome: every setting except where results are written and how they are shown.
Json outcome(const TrainOptions& options);

// Makes the folder and its descriptions, or checks that the run there is this one: UsageError that
// names the setting that differs.
void open_run_folder(const std::string& folder, const TrainOptions& options, const Json& env);

Json environment(const TrainOptions& options, at::Device device, const Json& sources);

// metrics.jsonl, a line per event, and the same for TensorBoard.
class Metrics {
 public:
  // Keeps the first `lines` lines, which is what a resumed run had written by its checkpoint.
  Metrics(const std::string& folder, int64_t lines, bool tensorboard);
  void write(int64_t step, Json values);  // adds step and time
  int64_t lines() const { return int64_t(all_.size()); }
  const std::vector<Json>& all() const { return all_; }

 private:
  void show(const Json& line);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
  std::unique_ptr<TensorBoard> board_;
  std::vector<Json> all_;
};

std::vector<Json> read_metrics(const std::string& folder);

}  // namespace horner
