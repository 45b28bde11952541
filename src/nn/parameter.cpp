#include "nn/parameter.h"

#include "core/check.h"

namespace horner {
namespace {

thread_local Lent* lender = nullptr;
thread_local Noted* notes = nullptr;

at::Tensor noted(const at::Tensor& x, bool trained) {
  if (notes != nullptr) notes->tensors.push_back({x, trained});
  return x;
}

}  // namespace

at::Tensor parameter(torch::nn::Module& m, const std::string& name, const InitialValue& initial) {
  return lent() ? lender->next() : noted(m.register_parameter(name, initial()), true);
}

at::Tensor buffer(torch::nn::Module& m, const std::string& name, const InitialValue& initial) {
  return lent() ? lender->next() : noted(m.register_buffer(name, initial()), false);
}

void start_at(const at::Tensor& parameter, const InitialValue& initial) {
  if (!lent()) parameter.set_data(initial().to(parameter.device()));  // shapes may be on meta
}

Lent::Lent(at::TensorList tensors) : rest_(tensors), outer_(lender) { lender = this; }
Lent::~Lent() { lender = outer_; }

at::Tensor Lent::next() {
  HORNER_CHECK(!rest_.empty(), "too few tensors were given");
  const at::Tensor x = rest_.front();
  rest_ = rest_.slice(1);
  return x;
}

bool lent() { return lender != nullptr; }

Noted::Noted() : outer_(notes) { notes = this; }
Noted::~Noted() { notes = outer_; }

}  // namespace horner
