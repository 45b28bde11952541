#include "ops/delta/delta.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "ops/chunks.h"
#include "ops/sample.h"

namespace horner {
namespace {

struct Problem {
  Operands x;
  at::Tensor S;  // (B,G,1,K,V)
};

Problem problem(const Inputs& in, const State& state, const Options& options) {
  Problem p{operands(in), {}};
  if (options.scale) p.x.q = p.x.q * *options.scale;
  p.S =
      state.empty()
          ? at::zeros({in.k.size(0), in.k.size(2), 1, in.k.size(3), in.v.size(3)}, p.x.v.options())
          : state.parts[0].to(p.x.v.scalar_type()).unsqueeze(2);
  return p;
}

Result finish(const at::Tensor& y, const at::Tensor& S, const Inputs& in, const Options& options) {
  Result result;
  result.o = to_output(y, in);
  if (options.final_state) result.state.parts = {S.squeeze(2)};
  return result;
}

// A decay (...,1,1) or (...,1,K) as a factor of the rows of a state (...,K,V).
at::Tensor of_rows(const at::Tensor& g) { return g.transpose(-1, -2); }

Result recurrent(const Inputs& in, const State& state, const Options& options, Saved*) {
  auto [x, S] = problem(in, state, options);
  std::vector<at::Tensor> y;
  for (int64_t t = 0; t < x.v.size(-2); ++t) {
    const at::Tensor k = x.k.narrow(-2, t, 1), v = x.v.narrow(-2, t, 1),
                     beta = x.beta.narrow(-2, t, 1);
    if (x.g.defined()) S = of_rows(x.g.narrow(-2, t, 1)).exp() * S;  // S^ = diag(a_t) S_{t-1}
    const at::Tensor e = v - at::matmul(k, S);                       // e_t = v_t - k_t S^
    S = S + at::matmul(k.transpose(-1, -2), beta * e);               // S_t = S^ + beta_t k_t^T e_t
    y.push_back(at::matmul(x.q.narrow(-2, t, 1), S));                // o_t = q_t S_t
  }
  return finish(at::cat(y, -2), S, in, options);
}

Result chunks_of(int64_t C, const Inputs& in, const State& state, const Options& options) {
  auto [x, S] = problem(in, state, options);
  const at::Tensor k = to_chunks(x.k, C), v = to_chunks(x.v, C),
                   beta = to_chunks(x.beta, C);  // (B,G,1,n,C,.)
  const at::Tensor g = x.g.defined() ? to_chunks(x.g, C) : x.g;
  at::Tensor q = to_chunks(x.q, C);
  const at::Tensor P = decayed_products(q, k, g);
  const at::Tensor L = beta * decayed_products(k, k, g).tril(-1);
  at::Tensor read = k, write = k, total;  // e^G K, e^{G_C-G} K
  if (g.defined()) {
    const at::Tensor from_start = since_start(g).exp();
    q = from_start * q;
    read = from_start * k;
    write = until_end(g).exp() * k;
    total = of_rows(g.sum(-2, true)).exp();  // e^{G_C}  (B,G,1,n,1,1) or (B,G,1,n,K,1)
  }
  const at::Tensor solved = at::linalg_solve_triangular(  // (I + L)^-1 diag(beta) [V, e^G K]
      L,
      beta * at::cat({v, read}, -1),
      /*upper=*/false,
      /*left=*/true,
      /*unitriangular=*/true
  );
  const int64_t V = v.size(-1), K = k.size(-1), n = v.size(3);
  const at::Tensor values = solved.narrow(-1, 0, V), keys = solved.narrow(-1, V, K);

  std::vector<at::Tensor> entering, errors;
  for (int64_t i = 0; i < n; ++i) {
    entering.push_back(S);
    const at::Tensor U = values.select(3, i) - product(keys.select(3, i), S);
    errors.push_back(U);
    if (g.defined()) S = total.select(3, i) * S;               // S' = diag(e^{G_C}) S
    S = S + product(write.select(3, i).transpose(-1, -2), U);  // + (e^{G_C-G} K)^T U
  }
  const at::Tensor y = product(q, at::stack(entering, 3)) + product(P, at::stack(errors, 3));
  return finish(from_chunks(y, x.v.size(-2)), S, in, options);
}

Result parallel(const Inputs& in, const State& state, const Options& options, Saved*) {
  return chunks_of(in.v.size(1), in, state, options);
}

Result chunked(const Inputs& in, const State& state, const Options& options, Saved*) {
  return chunks_of(options.chunk, in, state, options);
}

State zero_state(const Inputs& in, const c10::SymInt&, const Options&) {
  const at::TensorOptions like = in.v.options().dtype(state_dtype(in));
  return {{at::zeros_symint(
      {in.k.sym_size(0), in.k.sym_size(2), in.k.sym_size(3), in.v.sym_size(3)}, like
  )}};
}

Inputs sample(const Dims& d, const Variant& variant, at::TensorOptions options) {
  Inputs in = sample_qkv(d, options);
  in.k = in.k / in.k.norm(2, {-1}, true);
  in.g = sample_decay(d, variant.gate, options);
  in.beta = 2 * at::sigmoid(at::randn({d.B, d.T, d.G}, options));
  return in;
}

// beta = 0 writes nothing, and g = 0 forgets nothing.
bool pads(const Inputs&, const State&, const Options&) { return true; }

// Chunks of C = 64: as for `linear`, plus the solve for the errors.
Flops flops(const Dims& d, const Options&, std::string_view) {
  const double K = double(d.K), V = double(d.V), C = 64;
  const double forward = 4 * C * (K + V) + 6 * K * V + C * C;
  return {forward, 2.7 * forward};
}

Recurrence recurrence(const Inputs& in, const Options& o) {
  const at::Tensor write = in.beta.unsqueeze(-1) * in.k;
  const at::Tensor erase =
      at::eye(in.k.size(3), in.k.options()) - write.unsqueeze(-1) * in.k.unsqueeze(-2);
  at::Tensor a = at::ones_like(in.k.narrow(3, 0, 1));
  if (in.g.defined()) a = (in.g.dim() == 3 ? in.g.unsqueeze(-1) : in.g).exp();
  return {
      erase * a.unsqueeze(-2),  // (I - beta_t k_t^T k_t) diag(a_t)
      write,
      o.scale.value_or(1.0) * in.q,
      in.v,
      {}};
}

}  // namespace

Op delta_op() {
  Op op{
      .name = "delta",
      .equation =
          "S_t = (I - beta_t k_t^T k_t) diag(a_t) S_{t-1} + beta_t k_t^T v_t,  o_t = scale q_t S_t",
      .inputs = {kQ, kK, kV, kBeta, kMaybeG},
      .options = {"form", "chunk", "scale", "final_state"},
      .unit_keys = true,
      .forms =
          {{.name = forms::kRecurrent, .forward = recurrent, .suits = never},
           kernel_form(forms::kStepKernel),
           kernel_form(forms::kChunkedKernel),
           kernel_form(forms::kRecurrentKernel),
           step_form(recurrent),
           {.name = forms::kParallel, .forward = parallel, .suits = never},
           {.name = forms::kChunked, .forward = chunked}},
      .zero_state = zero_state,
      .sample = sample,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
  };
  op.variants = {
      {"delta rule", op.defaults},
      {"gated delta rule", op.defaults, "head"},
      {"decay per key", op.defaults, "key"}};
  return op;
}

}  // namespace horner
