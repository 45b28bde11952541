// A task: examples by index, what counts in them, and the scores of rules that learn nothing.
//
//   tokens    (B,T)    input ids                         features (B,T,d)  instead of tokens
//   targets   (B,T)    required output at position t, already shifted; -100: no loss, no metric
//   values    (B,T)    the same for a regression; NaN: none
//   labels    (B)      class of a whole sequence
//   lengths   (B)      later positions touch neither state, pooling, loss nor metric
//   cu_seqlens (n+1)   a packed batch, B = 1: state and positions restart at each start
//   slices    (B) each what scores are broken down by: num_kv_pairs, length, depth
//
// Examples are independent and depend only on (seed, split, index) (core/random.h). They are the same on any number of
// threads, and after an interruption training continues with the next index.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "core/options.h"
#include "core/random.h"

namespace horner {

constexpr int64_t kNoTarget = -100;
constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

struct Batch {
  at::Tensor tokens, features, targets, values, labels, lengths, cu_seqlens;  // unused: undefined
  std::map<std::string, at::Tensor> slices;
  double bytes = 0;  // of the text behind the targets, if the task is about text
};

// Tokens that a GPU made, and where a target is, in increasing order.
struct GpuBatch {
  at::Tensor tokens;           // (B,T)
  at::Tensor places, answers;  // (n): t + T row of each target, and the right token there
};

// The shape of a model that a task needs.
struct TaskShape {
  int64_t T = 0;            // tokens of the longest example
  int64_t vocabulary = 0;   // ids of tokens and targets; 0: the input is features
  int64_t features = 0;     // d
  int64_t classes = 0;      // of labels; 0: one output per position
  bool regression = false;  // one number per position
  bool rebuild = false;     // every token from the output at the last position
  bool causal = true;
};

// The score of a rule that learns nothing, printed with every score.
struct Baseline {
  std::string name;
  double score;
  std::string meaning;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual TaskShape shape() const = 0;
  virtual int64_t size(Split) const = 0;  // kEndless: training never sees an example twice
  // Examples of one batch, all of one segment.
  virtual Batch batch(Split, const std::vector<int64_t>& indices) const = 0;
  // How a GPU makes batches of the segment that contains `index`: the numbers of batch(). Undefined: only the CPU makes them.
  struct OnGpu {
    int64_t T = 0, targets = 0;                               // tokens and targets of each example
    std::function<GpuBatch(const at::Tensor& indices)> make;  // indices (B), on the GPU
  };
  virtual OnGpu on_gpu(Split, int64_t /*index*/) const { return {}; }
  // Sizes of consecutive ranges of indices. They are visited one after the other, and no batch has two of them.
  virtual std::vector<int64_t> segments(Split split) const { return {size(split)}; }
  // The same task with sequences of T tokens, for training short and testing long; null: it has none.
  virtual std::shared_ptr<Task> at_length(int64_t) const { return nullptr; }
  virtual std::vector<Baseline> baselines() const { return {}; }
  // "accuracy" (of counted positions, then of examples), "sequence accuracy", "bits per byte", "loss".
  virtual std::string metric() const { return "accuracy"; }
  virtual Json options() const = 0;
  virtual Json sources() const { return Json::array(); }  // files it read: path, bytes, hash
  // Name and bytes of its tokenizer's files, which are stored in a checkpoint.
  virtual std::vector<std::pair<std::string, std::string>> tokenizer_files() const { return {}; }
  // How many answers at the end of an example a model can also give one by one, reading each back as the next token; 0: none.
  virtual int64_t free_running() const { return 0; }
};

// A row of THE list.
struct TaskType {
  std::string_view name;
  std::string_view paper;             // arXiv id, or "own"
  std::string_view about;             // one line
  std::vector<std::string> variants;  // settings that tests walk
  std::vector<std::string> refused;   // settings that it must refuse
  std::shared_ptr<Task> (*make)(const Json& options);
  Json (*parse)(std::string_view text);
  std::vector<Description> (*describe)();
};

// THE list, in tasks.cpp.
const std::vector<TaskType>& tasks();
const TaskType& find_task(std::string_view name);
std::shared_ptr<Task> make_task(std::string_view text);  // "mqar" or "mqar:T=128,pairs=24"

}  // namespace horner
