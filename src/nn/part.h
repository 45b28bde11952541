// Names what a stretch of the forward does, so that `bench train --profile` can say which part of a step takes how long.
//
//   const Part part(parts::kNorms);   // until the end of the scope
//
// Autograd numbers its nodes in the order of the forward. A mark holds the next node's number and the part that begins
// there, so a node of the backward finds its part by its number. The innermost part counts, except inside kMlp and
// kHead, which are measured whole. Nothing is recorded unless record_parts was called.
#pragma once

#include <ATen/record_function.h>

#include <optional>
#include <string>
#include <vector>

namespace horner {

namespace parts {
constexpr const char *kProjections = "projections", *kOp = "op", *kNorms = "norms",
                     *kConvolution = "convolution", *kGates = "gates", *kMlp = "mlp",
                     *kHead = "head and loss", *kEmbedding = "embedding", *kResidual = "residual",
                     *kOptimiser = "optimiser", *kOther = "other";
}  // namespace parts

constexpr const char* kPartPrefix = "part: ";  // of the events that a profiler sees

struct PartMark {
  uint64_t thread;    // of the forward, as the profiler counts threads
  uint64_t sequence;  // of autograd's next node
  const char* part;   // that begins here
};

void record_parts(bool on);
std::vector<PartMark> take_part_marks();  // in the order of the forward; forgets them

class Part {
 public:
  explicit Part(const char* name);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part();

 private:
  const char* before_ = nullptr;  // the part around this one
  std::optional<at::RecordFunction> event_;
};

}  // namespace horner
