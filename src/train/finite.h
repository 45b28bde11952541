// Whether numbers are numbers: asked before a checkpoint is written and at the end of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace horner {

class Model;
class Optimizer;
struct Scores;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The name of the first tensor that holds a NaN or an infinity; empty: none. A GPU is waited for once.
std::string not_finite(const NamedTensors& tensors);

// The first weight or moment that is not finite, among those that this process owns; empty: none.
std::string not_finite(const Model& model, const Optimizer& optimizer);
// RunError that names the step and the weight or moment.
void check_finite(const std::string& name, int64_t step);
// The same for a loss: "the test loss is nan".
void check_finite(const Scores& scores, const char* split, int64_t step);

}  // namespace horner
