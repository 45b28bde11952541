#include "ops/scan/scan.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "ops/chunks.h"
#include "ops/sample.h"

namespace horner {
namespace {

struct Problem {
  at::Tensor g, b;  // (B,H,T,V)
  at::Tensor h;     // (B,H,V), undefined at the start
};

Problem problem(const Inputs& in, const State& state) {
  const Operands x = operands(in);
  Problem p{x.g.squeeze(2), x.v.squeeze(2), {}};
  p.g = p.g.expand_as(p.b);
  if (!state.empty()) p.h = state.parts[0].to(p.b.scalar_type());
  return p;
}

Result finish(const at::Tensor& h, const Inputs& in, const Options& options) {
  Result result;
  result.o = to_output(h.unsqueeze(2), in);
  if (options.final_state) result.state.parts = {h.select(2, h.size(2) - 1).contiguous()};
  return result;
}

Result recurrent(const Inputs& in, const State& state, const Options& options, Saved*) {
  auto [g, v, h] = problem(in, state);
  const std::vector<at::Tensor> a = g.exp().unbind(2), b = v.unbind(2);
  std::vector<at::Tensor> all;
  for (size_t t = 0; t < b.size(); ++t) {
    h = h.defined() ? a[t] * h + b[t] : b[t];  // h_t = a_t h_{t-1} + b_t
    all.push_back(h);
  }
  return finish(at::stack(all, 2), in, options);
}

// h_t of every chunk from a zero state: after each round a pair covers twice as many tokens.
at::Tensor doubling(at::Tensor a, at::Tensor b) {  // (...,C,V)
  const int64_t C = b.size(-2);
  for (int64_t d = 1; d < C; d *= 2) {
    const at::Tensor later = a.narrow(-2, d, C - d);
    b = at::cat({b.narrow(-2, 0, d), later * b.narrow(-2, 0, C - d) + b.narrow(-2, d, C - d)}, -2);
    a = at::cat({a.narrow(-2, 0, d), later * a.narrow(-2, 0, C - d)}, -2);
  }
  return b;
}

Result chunks_of(int64_t C, const Inputs& in, const State& state, const Options& options) {
  const auto [g, b, h0] = problem(in, state);
  const at::Tensor gs = to_chunks(g, C);  // (B,H,n,C,V)
  const at::Tensor inside = doubling(gs.exp(), to_chunks(b, C)), A = since_start(gs).exp();
  at::Tensor h = h0.defined() ? h0 : at::zeros_like(inside.select(2, 0).select(2, 0));
  std::vector<at::Tensor> entering;
  for (int64_t i = 0; i < inside.size(2); ++i) {
    entering.push_back(h);
    h = A.select(2, i).select(2, C - 1) * h +
        inside.select(2, i).select(2, C - 1);  // e^{G_C} h + h_C
  }
  const at::Tensor before = at::stack(entering, 2).unsqueeze(3);  // (B,H,n,1,V)
  return finish(from_chunks(A * before + inside, b.size(2)), in, options);
}

Result parallel(const Inputs& in, const State& state, const Options& options, Saved*) {
  return chunks_of(in.v.size(1), in, state, options);
}

Result chunked(const Inputs& in, const State& state, const Options& options, Saved*) {
  return chunks_of(options.chunk, in, state, options);
}

// On a CPU with many channels the loop is faster: a step has enough work, and doubling does log C times as much.
bool suits_loop(const Inputs& in, const State&, const Options&) {
  const int64_t channels = in.v.size(0) * in.v.size(2) * in.v.size(3);
  return in.v.is_cpu() && in.v.size(1) > 1 && channels >= 4096;
}

State zero_state(const Inputs& in, const c10::SymInt&, const Options&) {
  const at::TensorOptions like = in.v.options().dtype(state_dtype(in));
  return {{at::zeros_symint({in.v.sym_size(0), in.v.sym_size(2), in.v.sym_size(3)}, like)}};
}

void check(const Inputs& in, const State&, const Options&) {
  HORNER_CHECK(
      !in.v.is_complex() || in.g.is_complex(),
      "[scan] a complex v needs a complex g, got a real one"
  );
}

Inputs sample(const Dims& d, const Variant& variant, at::TensorOptions options) {
  Inputs in;
  in.v = at::randn({d.B, d.T, d.G, d.V}, options);
  in.g = at::log_sigmoid(at::randn({d.B, d.T, d.G, d.V}, options) + 2.0);
  if (variant.gate == "head") in.g = in.g.select(3, 0);
  if (variant.complex) {
    const auto widen = [](const at::Tensor& x) {
      return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
    };
    in.g = at::complex(widen(in.g), widen(at::randn({d.B, d.T, d.G, d.V}, options)));
    in.v = at::complex(widen(in.v), widen(at::randn({d.B, d.T, d.G, d.V}, options)));
  }
  return in;
}

// v = 0 and a = 1 leave h as it is.
bool pads(const Inputs&, const State&, const Options&) { return true; }

Flops flops(const Dims&, const Options&, std::string_view) { return {}; }  // bytes bind

// One head per channel, with a state of one number.
Recurrence recurrence(const Inputs& in, const Options&) {
  const at::Tensor g = in.g.dim() == 3 ? in.g.unsqueeze(-1) : in.g;
  const at::Tensor u = in.v.flatten(2).unsqueeze(-1), one = at::ones_like(u);
  return {g.expand_as(in.v).flatten(2).unsqueeze(-1).exp(), one, one, u, {}};
}

}  // namespace

Op scan_op() {
  Op op{
      .name = "scan",
      .equation = "h_t = a_t h_{t-1} + v_t,  a = exp g, element by element",
      .inputs = {kV, kG},
      .options = {"form", "chunk", "final_state"},
      .complex = true,
      .forms =
          {{.name = forms::kRecurrent, .forward = recurrent, .suits = suits_loop},
           kernel_form(forms::kChunkedKernel),
           step_form(recurrent),
           {.name = forms::kParallel, .forward = parallel, .suits = never},
           {.name = forms::kChunked, .forward = chunked}},
      .zero_state = zero_state,
      .sample = sample,
      .check = check,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
  };
  op.variants = {
      {"real", op.defaults},
      {"one decay per head", op.defaults, "head"},
      {"complex", op.defaults, "none", true},
  };
  return op;
}

}  // namespace horner
