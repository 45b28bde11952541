#include "lab/concepts/concepts.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "ops/op.h"

namespace horner {
namespace {

struct Subject {
  const char *name, *op;
  int64_t order = 0;
};
constexpr Subject kSubjects[] = {
    {"softmax", "attention"},
    {"series, order 4", "power", 4},
    {"series, order 2", "power", 2},
    {"delta rule", "delta"},
    {"linear", "linear"}};

at::Tensor unit_rows(int64_t repeats, int64_t n) {
  const at::Tensor x = at::randn({repeats, n, 1, kCapacityDim}, at::kDouble);
  return x / x.norm(2, {-1}, true);
}

Options options_of(const Subject& s) {
  const Op& op = find_op(s.op);
  Options o = op.defaults;
  if (s.order > 0) o.order = s.order;
  if (op.series) {
    o.scale = 6.0;  // the right key scores 6, the others about 1.5 in either direction
    o.form = forms::kParallel;
  }
  return o;
}

// First the pairs with q = 0, then the questions with k = v = 0, which change nothing but a normaliser.
double share_right(const Subject& s, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor none = at::zeros_like(k);
  Inputs in;
  in.q = at::cat({none, k}, 1);  // (R,2n,1,K)
  in.k = at::cat({k, none}, 1);
  in.v = at::cat({v, none}, 1);
  const Op& op = find_op(s.op);
  if (op.takes(kBeta)) in.beta = at::cat({at::ones_like(k), none}, 1).select(-1, 0).contiguous();
  const int64_t n = k.size(1);
  const at::Tensor o = run(op, in, {}, options_of(s)).o.narrow(1, n, n);
  const at::Tensor near = at::einsum("rihv,rjhv->rij", {o, v});  // answer i, value j
  return (near.argmax(-1) == at::arange(n)).to(at::kDouble).mean().item<double>();
}

int64_t numbers_of(const Subject& s) {
  const Op& op = find_op(s.op);
  if (op.keeps_tokens) return 0;
  Inputs in;
  in.q = in.k = in.v = at::zeros({1, 1, 1, kCapacityDim});
  if (op.takes(kBeta)) in.beta = at::zeros({1, 1, 1});
  return op.zero_state(in, 1, options_of(s)).bytes() / int64_t(sizeof(float));
}

}  // namespace

std::vector<Capacity> measure_capacity(int64_t repeats, uint64_t seed) {
  const c10::NoGradGuard no_graph;
  std::vector<Capacity> all;
  for (const Subject& s : kSubjects) {
    at::manual_seed(seed);  // the same pairs for every op
    Capacity c{s.name, numbers_of(s), {}};
    for (int64_t n = 2; n <= 256; n *= 2) {
      const at::Tensor k = unit_rows(repeats, n), v = unit_rows(repeats, n);
      c.right.emplace_back(n, share_right(s, k, v));
    }
    all.push_back(c);
  }
  return all;
}

}  // namespace horner
