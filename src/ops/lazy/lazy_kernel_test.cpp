// The kernel of lazy steps against fp64: it errs at most twice as much as steps of the plain form in the same precision.
#include <ATen/Functions.h>

#include "core/device.h"
#include "ops/chunks.h"
#include "ops/kernel_error.h"
#include "ops/lazy/lazy.h"

namespace horner {
namespace {

struct Setting {
  std::string op = "power";
  Dims dims = {.B = 2, .T = 40, .H = 4, .G = 4, .K = 16, .V = 64};
  std::string gate = "none";
  std::string norm = "none";
  int64_t order = 2;
  double decay = 0;  // 0: sampled
  at::ScalarType type = at::kBFloat16;
  int64_t fold = 16;
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << fmt::format(
      "{}, {}, {}, decay {} {}, norm {}, order {}, fold {}",
      s.op,
      describe(s.dims),
      c10::toString(s.type),
      s.gate,
      s.decay,
      s.norm,
      s.order,
      s.fold
  );
}

class LazyKernelCuda : public testing::TestWithParam<Setting> {};
TEST_P(LazyKernelCuda, ErrsAtMostTwiceAsMuch) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Setting& s = GetParam();
  const Op& op = find_op(s.op);
  Variant variant;
  variant.options = op.defaults;
  variant.options.norm = s.norm;
  if (s.op == "power") variant.options.order = s.order;
  if (s.op == "power" && s.order % 2 == 1) variant.options.odd = s.norm == "sum";
  variant.gate = s.gate;
  Inputs in = sample_inputs({op, variant, s.dims, at::Device(at::kCUDA, 0), 3}, at::kFloat);
  for (const Input& input : {kQ, kK, kV}) {
    at::Tensor& x = in.*input.tensor;
    x = (x * 0.5).to(s.type);
  }
  if (in.g.defined() && s.decay != 0) in.g = at::full_like(in.g, s.decay);
  Options o = variant.options;
  o.final_state = true;
  Inputs exact_in = in;
  for (const Input& input : op.inputs) {
    at::Tensor& x = exact_in.*input.tensor;
    if (x.defined()) x = x.to(at::kDouble);
  }
  const Result exact = run(op, exact_in, {}, o);
  Options chunked = o;
  chunked.form = "chunked";
  chunked.chunk = 16;
  const Result plain = [&] {
    std::optional<RoundedProducts> low;
    if (s.type == at::kBFloat16) low.emplace();
    return run(op, in, {}, chunked);
  }();
  Lazy lazy{.fold = s.fold};
  std::vector<at::Tensor> steps;
  for (int64_t t = 0; t < s.dims.T; ++t) {
    const Inputs token = tokens(op, in, t, 1);
    EXPECT_TRUE(has_reader(op, token, lazy, o));
    steps.push_back(lazy_step(op, token, lazy, o));
  }
  expect_at_most_twice("o", errors(at::cat(steps, 1), exact.o), errors(plain.o, exact.o));
  expect_at_most_twice(
      "S",
      errors(fold(op, lazy, o).parts[0], exact.state.parts[0]),
      errors(plain.state.parts[0], exact.state.parts[0])
  );
}

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t order : {0, 1, 2}) {
      for (const char* norm : {"none", "sum"}) {
        for (const char* gate : {"none", "head"})
          list.push_back({.gate = gate, .norm = norm, .order = order, .type = type});
      }
    }
    for (const char* gate : {"none", "head", "key"}) {
      for (const char* norm : {"none", "sum"}) {
        list.push_back(
            {.op = "linear",
             .dims = {.B = 2, .T = 40, .H = 4, .G = 2, .K = 64, .V = 64},
             .gate = gate,
             .norm = norm,
             .type = type}
        );
      }
    }
  }
  const Dims grouped{.B = 3, .T = 37, .H = 6, .G = 2, .K = 16, .V = 48};
  list.push_back({.dims = grouped, .gate = "head", .norm = "sum"});
  list.push_back({.dims = {.B = 1, .T = 33, .H = 2, .G = 2, .K = 64, .V = 128}, .norm = "sum"});
  const Dims square{.B = 2, .T = 40, .H = 3, .G = 3, .K = 128, .V = 128};
  for (const double decay : {-20.0, -1e-3, -std::numeric_limits<double>::infinity()})
    list.push_back({.op = "linear", .dims = square, .gate = "head", .decay = decay});
  list.push_back({.op = "linear", .dims = square, .gate = "key", .decay = -20});
  const Dims wide{.B = 1, .T = 35, .H = 2, .G = 1, .K = 256, .V = 256};
  list.push_back({.op = "linear", .dims = wide, .gate = "key"});
  list.push_back({.op = "linear", .dims = wide, .gate = "key", .norm = "sum", .type = at::kFloat});
  list.push_back({.op = "linear", .dims = square, .gate = "head", .norm = "sum"});
  const Dims small{.B = 2, .T = 40, .H = 3, .G = 3, .K = 8, .V = 8};
  for (const int64_t fold : {1, 5, 16}) {
    list.push_back({.dims = small, .gate = "head", .norm = "sum", .fold = fold});
    list.push_back({.op = "linear", .dims = small, .gate = "key", .fold = fold});
  }
  const Dims odd{.B = 1, .T = 20, .H = 3, .G = 1, .K = 12, .V = 20};
  list.push_back({.op = "linear", .dims = odd, .gate = "key", .norm = "sum", .type = at::kFloat});
  list.push_back({.dims = odd, .gate = "head", .norm = "sum", .type = at::kFloat});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Settings, LazyKernelCuda, testing::ValuesIn(settings()));

}  // namespace
}  // namespace horner
