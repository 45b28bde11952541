// The folder of a run: its settings, where it ran, what was measured.
//
//   config.toml (what differs from the defaults)  config.json (everything)  env.json (with format_version)
//   metrics.jsonl  tb/  checkpoints/  result.json (at the end)  lock (who writes)
#pragma once

#include <memory>

#include "core/check.h"
#include "core/file.h"
#include "io/tensorboard.h"
#include "model/formats/checkpoint_folder.h"
#include "tasks/task.h"
#include "train/train.h"

namespace horner {

// Reads a JSON file; what it lacks or has otherwise is a DataError that names the file.
template <class Read>
auto read_from(const std::string& path, Read&& read) {
  const Json json = parse_json(read_file(path), path);
  constexpr const char* kOther = "{}: is damaged, or was written by another version: {}";
  try {
    return read(json);
  } catch (const Json::exception& e) {
    const std::string what = e.what();  // "[json.exception.out_of_range.403] key 'seed' not found"
    throw DataError(kOther, path, what.substr(what.find("] ") + 2));
  } catch (const UsageError& e) {
    throw DataError(kOther, path, e.what());
  } catch (const std::logic_error&) {  // of a conversion; its words are for programmers
    throw DataError(kOther, path, "a value has another form");
  }
}

// The files that a task has read, then its tokenizer's, then the weights of `from`: [{path, bytes, xxh128}].
Json data_of(const Task& task, const std::string& from = "");
std::string data_hash(const Json& data);  // of the contents; empty: no files
// The first file whose contents differ, in words; empty: none. Paths do not matter.
std::string data_difference(const Json& then, const Json& now);
// The first key of `a` whose value in `b` is another, in words; empty: none.
std::string difference(
    const Json& a,
    const Json& b,
    const std::string& where_a = "then",
    const std::string& where_b = "now"
);

// Prefix, task, pattern, seed, and a hash of everything that decides the outcome: settings, and the contents of the data. A
// run from before data were part of the hash keeps its name if `options.out` holds it and its data are these.
std::string run_name(const TrainOptions& options, const Json& data, const std::string& prefix = "");

// What decides the outcome: every setting except where results are written and how they are shown.
Json outcome(const TrainOptions& options);

// Makes the descriptions in a folder, or checks that the run there is this one: UsageError that names the setting or the
// file of data that differs.
void open_run_folder(const std::string& folder, const TrainOptions& options, const Json& env);

Json environment(const TrainOptions& options, at::Device device, const Task& task);

// metrics.jsonl, a line per event, and the same for TensorBoard.
class Metrics {
 public:
  // Keeps the first `lines` lines, which is what a resumed run had written by its checkpoint. `notes` gets a line if some of
  // them are missing or damaged: they are lost, and the run goes on.
  Metrics(
      const std::string& folder, int64_t lines, bool tensorboard, std::vector<std::string>& notes
  );
  void write(int64_t step, Json values);  // adds step and time
  void sync();                            // until a power loss cannot take the lines any more
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
