// One token on a CPU against the definition.
#include "ops/attention/step_cpu.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ops/contract.h"

namespace horner {
namespace {

const Op& op() { return find_op("attention"); }

struct Shape {
  Dims dims;
  int64_t past, window, sinks;
};
const Shape kShapes[] = {
    {{.B = 2, .T = 1, .H = 4, .G = 2, .K = 16, .V = 16}, 2500, 0, 0},
    {{.B = 1, .T = 1, .H = 6, .G = 2, .K = 64, .V = 64}, 1029, 0, 0},
    {{.B = 1, .T = 1, .H = 1, .G = 1, .K = 128, .V = 80}, 65, 0, 0},
    {{.B = 3, .T = 1, .H = 2, .G = 2, .K = 5, .V = 37}, 130, 0, 0},
    {{.B = 2, .T = 1, .H = 4, .G = 2, .K = 33, .V = 1}, 300, 100, 4},
    {{.B = 2, .T = 1, .H = 4, .G = 1, .K = 16, .V = 16}, 2, 64, 8},
    {{.B = 1, .T = 1, .H = 3, .G = 3, .K = 1, .V = 3}, 0, 0, 0},
};

struct Call {
  Inputs in;
  State state;
  Options o;
};
Call call_of(const Shape& shape, at::ScalarType type) {
  Call call;
  call.in = sample_inputs({op(), {}, shape.dims, at::kCPU, 7}, type);
  call.o.window = shape.window;
  call.o.sinks = shape.sinks;
  call.o.log_norm = call.o.final_state = true;
  Dims past = shape.dims;
  past.T = shape.past;
  if (shape.past > 0)
    call.state = run(op(), sample_inputs({op(), {}, past, at::kCPU, 8}, type), {}, call.o).state;
  return call;
}

Result recurrent(Call call, at::ScalarType type) {
  call.o.form = "recurrent";
  for (at::Tensor* x : {&call.in.q, &call.in.k, &call.in.v}) *x = x->to(type);
  for (at::Tensor& part : call.state.parts)
    if (part.is_floating_point()) part = part.to(type);
  return run(op(), call.in, call.state, call.o);
}

TEST(AttentionStep, IsTheDefinition) {
  for (const Shape& shape : kShapes) {
    for (const auto& [type, bound] :
         {std::pair{at::kDouble, 1e-13}, {at::kFloat, 2e-6}, {at::kBFloat16, 1.0 / 200}}) {
      for (const std::optional<double> clamp : {std::optional<double>(), std::optional(0.5)}) {
        Call call = call_of(shape, type);
        call.o.clamp = clamp;
        ASSERT_EQ(attention_step_cpu_refuses(call.in, call.state, call.o), "");
        const Result got = run(op(), call.in, call.state, call.o);
        EXPECT_EQ(got.form, forms::kFusedStep);
        const Result expected = recurrent(call, at::kDouble);
        EXPECT_LT(relative_error(got.o, expected.o), bound) << shape.past << " " << type;
        EXPECT_LT(relative_error(got.norm, expected.norm), type == at::kDouble ? 1e-13 : 1e-6);
      }
    }
  }
}

TEST(AttentionStep, ThreadsChangeNoBit) {
  const Call call = call_of(kShapes[0], at::kFloat);
  const at::Tensor two = run(op(), call.in, call.state, call.o).o;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = run(op(), call.in, call.state, call.o).o;
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, two));
}

// Scores of 1e4 and a NaN: finite stays finite, and a NaN is not hidden.
TEST(AttentionStep, HugeAndNotANumber) {
  Call call = call_of(kShapes[1], at::kFloat);
  call.in.q = 1e4 * call.in.q;
  EXPECT_TRUE(at::isfinite(run(op(), call.in, call.state, call.o).o).all().item<bool>());
  call.in.q.select(2, 0).fill_(NAN);
  const at::Tensor o = run(op(), call.in, call.state, call.o).o;
  EXPECT_TRUE(at::isnan(o.select(2, 0)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(o.select(2, 1)).all().item<bool>());
}

}  // namespace
}  // namespace horner
