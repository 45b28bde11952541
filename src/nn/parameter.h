// The tensors of a layer: its own, or tensors that are lent to it for one call.
//
//   A_log_ = parameter(*this, "A_log", [&] { return uniform({H}, 1, 16).log(); });
//
// A layer keeps its tensors in members, so tensors can be exchanged only while it is built. A call that brings its own
// parameters (Python's layers, mixers/library.cpp) therefore builds the layer around them: while a Lent lives,
// `parameter` and `buffer` hand out its tensors in the order of the calls, evaluate no initial value and register nothing.
// Nothing is shared between two calls, so threads need no lock.
#pragma once

#include <torch/nn/module.h>

#include <functional>

namespace horner {

using InitialValue = std::function<at::Tensor()>;
at::Tensor parameter(torch::nn::Module&, const std::string& name, const InitialValue&);
at::Tensor buffer(torch::nn::Module&, const std::string& name, const InitialValue&);
// Another initial value for a tensor that the layer has registered already.
void start_at(const at::Tensor& parameter, const InitialValue&);

// Gives `tensors` to the layers that this thread builds while it lives.
class Lent {
 public:
  explicit Lent(at::TensorList tensors);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  at::Tensor next();

 private:
  at::TensorList rest_;
  Lent* const outer_;
};
bool lent();  // whether a Lent lives on this thread

// Notes the tensors that layers register on this thread while it lives, in the order in which a Lent hands them out.
class Noted {
 public:
  struct One {
    at::Tensor tensor;
    bool trained;  // a parameter; else a buffer
  };

  Noted();
  ~Noted();
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

  std::vector<One> tensors;

 private:
  Noted* const outer_;
};

}  // namespace horner
