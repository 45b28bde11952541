// A padded batch is its sequences, each on its own: o, the state and the gradients.
#include "ops/packed.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/contract.h"

namespace horner {
namespace {

using RunPacked =
    Result (*)(const Op&, const RunForm&, const Inputs&, const State&, const Options&);

std::vector<at::Tensor> values(
    RunPacked run_packed_by, const Form& form, const Op& op, const Inputs& given, const Options& o
) {
  Inputs in;
  in.cu_seqlens = given.cu_seqlens;
  std::vector<at::Tensor> leaves, all;
  for (const Input& input : op.inputs) {
    const at::Tensor& x = given.*input.tensor;
    if (!x.defined()) continue;
    leaves.push_back(x.detach().requires_grad_(true));
    in.*input.tensor = leaves.back();
  }
  const RunForm once = [&](const Inputs& x, const State& s, const Options& own) {
    return form.forward(x, s, own, nullptr);
  };
  const Result y = run_packed_by(op, once, in, {}, o);
  at::Tensor loss = at::real(y.o).cos().sum();
  if (y.norm.defined()) loss = loss + y.norm.sin().sum();
  if (o.final_state)
    for (const at::Tensor& part : y.state.parts) loss = loss + at::real(part).sin().sum();
  all = torch::autograd::grad({loss}, leaves, {}, {}, false, true);
  all.push_back(y.o.detach());
  if (o.final_state)
    for (const at::Tensor& part : y.state.parts) all.push_back(part.detach());
  return all;
}

TEST(Packed, PaddedIsEachOnItsOwn) {
  int64_t compared = 0;
  for (const Op& op : ops()) {
    for (const Variant& variant : op.variants) {
      for (const bool state : {false, true}) {
        Options o = variant.options;
        o.final_state = state;
        const Dims dims{.B = 1, .T = 37, .H = 4, .G = 2, .K = 5, .V = 6};
        Inputs in = sample_inputs({op, variant, dims, at::kCPU, 3}, at::kDouble);
        in.cu_seqlens = at::tensor({0, 3, 3, 20, 37}, at::kLong);
        if (!op.pads(in, {}, o)) continue;
        for (const Form& form : op.forms) {
          if (form.place != Place::any || form.refuses != nullptr) continue;
          const auto padded = values(run_padded, form, op, in, o);
          const auto each = values(run_each, form, op, in, o);
          ASSERT_EQ(padded.size(), each.size());
          for (size_t i = 0; i < each.size(); ++i) {
            ASSERT_EQ(padded[i].defined(), each[i].defined());
            if (!each[i].defined()) continue;
            EXPECT_LT(relative_error(padded[i], each[i]), 1e-12)
                << op.name << ", " << variant.name << ", value " << i;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace horner
