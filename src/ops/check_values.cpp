#include "ops/check_values.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cstdlib>

#include "core/check.h"
#include "ops/dispatch.h"

namespace horner {
namespace {

constexpr double kNormTolerance = 0.01;  // a unit vector in bf16 is off by up to 0.004

bool asked_for() {
  const char* value = std::getenv("HORNER_CHECK");
#ifdef NDEBUG
  return value != nullptr && std::string_view(value) == "1";
#else
  return value == nullptr || std::string_view(value) == "1";
#endif
}

thread_local std::optional<bool> own_choice;

struct Unchecked {  // while it lives
  const std::optional<bool> before = own_choice;
  Unchecked() { own_choice = false; }
  ~Unchecked() { own_choice = before; }
};

// Throws at the first place where `wrong` is true.
void check_nowhere(
    const at::Tensor& wrong,
    const at::Tensor& x,
    std::string_view op,
    std::string_view rule,
    std::string_view letters
) {
  if (!wrong.any().item<bool>()) return;
  const at::Tensor place = wrong.nonzero().select(0, 0).to(at::kCPU);
  std::vector<at::indexing::TensorIndex> index;
  std::vector<int64_t> numbers;
  for (int64_t d = 0; d < place.numel(); ++d) {
    numbers.push_back(place[d].item<int64_t>());
    index.emplace_back(numbers.back());
  }
  throw UsageError(
      "[{}] {}, got {:.6g} at {} = ({})",
      op,
      rule,
      x.index(index).item<double>(),
      letters.substr(0, 2 * numbers.size() - 1),
      fmt::join(numbers, ",")
  );
}

at::Tensor real_part(const at::Tensor& x) { return x.is_complex() ? at::real(x) : x; }

// The sum of weights of a call with norm = sum.   (B,T,H)
at::Tensor denominator(const Op& op, const Inputs& in, const State& state, const Options& options) {
  Inputs ones = in;
  ones.v = at::ones_like(in.v.narrow(3, 0, 1));
  State before = state;
  for (at::Tensor& part : before.parts) part = part.narrow(-1, part.size(-1) - 1, 1);
  Options plain = options;
  plain.norm = "none";
  plain.log_norm = plain.final_state = false;
  plain.form = forms::kAuto;
  return run(op, ones, before, plain).o.squeeze(-1);
}

}  // namespace

bool checks_values() {
  static const bool by_default = asked_for();
  return own_choice.value_or(by_default);
}

void set_checks_values(std::optional<bool> on) { own_choice = on; }

void check_values(const Op& op, const Inputs& in, const State& state, const Options& options) {
  if (!have_memory(op, in, state)) return;
  const c10::NoGradGuard no_graph;
  if (in.g.defined()) {
    const at::Tensor g = real_part(in.g);
    check_nowhere(g > 0, g, op.name, "g is a log-decay and must be at most 0", "b,t,h,k");
  }
  if (in.beta.defined()) {
    const at::Tensor outside = (in.beta < 0).logical_or(in.beta > 2);
    check_nowhere(outside, in.beta, op.name, "beta must lie in [0, 2]", "b,t,h");
  }
  if (op.unit_keys) {
    const at::Tensor norm = in.k.to(at::kDouble).norm(2, -1);
    check_nowhere(
        norm > 1 + kNormTolerance, norm, op.name, "the norm of k must be at most 1", "b,t,h"
    );
  }
  if (options.norm != "sum") return;
  const Unchecked inside;
  const at::Tensor den = denominator(op, in, state, options);
  check_nowhere(
      (den > 0).logical_not(), den, op.name, "the sum of weights must be above 0", "b,t,h"
  );
}

}  // namespace horner

TORCH_LIBRARY_FRAGMENT(horner, m) { m.def("set_check(bool? on) -> ()", horner::set_checks_values); }
