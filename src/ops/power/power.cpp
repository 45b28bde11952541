#include "ops/power/power.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/check.h"
#include "core/constant.h"
#include "ops/sample.h"
#include "ops/weighted_sum.h"

namespace horner {
namespace {

constexpr double kMostFeatures = 1 << 24;  // a larger state is refused

// f(x_i, tail): tail holds the values of order n-1 whose first factor is i or later.
// Monomials x_i1 .. x_in with i1 <= .. <= in, in lexicographic order, so a tail is a suffix.
template <class Combine>
at::Tensor by_order(const at::Tensor& x, int64_t order, at::Tensor value, Combine&& combine) {
  const int64_t K = x.size(-1);
  std::vector<at::Tensor> all = {value};     // order 0: one value
  std::vector<int64_t> start(size_t(K), 0);  // where the monomials that begin with i start
  for (int64_t n = 1; n <= order; ++n) {
    std::vector<at::Tensor> row;
    std::vector<int64_t> next(size_t(K), 0);
    int64_t count = 0;
    for (int64_t i = 0; i < K; ++i) {
      const int64_t from = start[size_t(i)];
      const at::Tensor tail = value.narrow(-1, from, value.size(-1) - from);
      next[size_t(i)] = count;
      row.push_back(combine(x.narrow(-1, i, 1), tail));
      count += tail.size(-1);
    }
    value = at::cat(row, -1);
    start = next;
    all.push_back(value);
  }
  return at::cat(all, -1);
}

Weights weights(const Inputs& in, const Options& options) {
  const int64_t N = options.order, K = in.k.size(3);
  const bool inside = options.decay == "inside";
  const std::vector<double> c = series(options);
  const auto product = [c](const at::Tensor& q, const at::Tensor& k) {
    return polynomial(horner::product(q, k.transpose(-1, -2)), c);  // p(x_ts)
  };
  const auto per_key = [K](const at::Tensor& g) {  // (...,1|K) -> (...,K)
    return g.size(-1) == K ? g : g.repeat_interleave(K, -1);
  };
  return {
      .phi = [=](const at::Tensor& q
             ) { return monomials(q, N) * constant(monomial_weights(K, c), q.options()); },
      .psi = [=](const at::Tensor& k) { return monomials(k, N); },
      .decay = [=](const at::Tensor& g) { return inside ? monomial_sums(per_key(g), N) : g; },
      .pairs =
          [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& g) {
            if (inside && g.defined()) return polynomial(decayed_products(q, k, g), c).tril();
            return g.defined() ? product(q, k) * between(g).exp() : product(q, k).tril();
          },
      .product = product,
      .scale = options.scale.value_or(1.0 / std::sqrt(double(K))),
      .features = feature_count(K, N),
  };
}

// Not asked on a GPU, which would have to be waited for.
void check_scores(const Inputs& in, const State& state, const Options& o, std::string_view form) {
  const bool one = in.q.size(1) == 1 && o.order <= 2;  // a step: its limit is 5,800
  const bool pairs_only = form == forms::kChunked && in.q.size(1) <= o.chunk && state.empty();
  if (!in.q.is_cpu() || in.q.scalar_type() == at::kDouble || one || pairs_only) return;
  const c10::NoGradGuard no_graph;
  const auto longest = [](const at::Tensor& x) {
    return x.to(at::kFloat).square().sum(-1).max().sqrt().item<double>();
  };
  const double scale = o.scale.value_or(1.0 / std::sqrt(double(in.q.size(3))));
  const double r = std::abs(scale) * longest(in.q) * longest(in.k);
  const double most = score_where(series(o), kNoDigit);
  HORNER_CHECK(
      !std::isfinite(r) || r <= most,
      "[power] form = {} at order {}: scale |q||k| reaches {:.4g}, and from {:.4g} on fp32 may "
      "keep "
      "no digit; form = parallel without a state does",
      form,
      o.order,
      r,
      most
  );
}

Result recurrent(const Inputs& in, const State& state, const Options& options, Saved*) {
  check_scores(in, state, options, forms::kRecurrent);
  return recurrent_sum(weights(in, options), in, state, options);
}

Result parallel(const Inputs& in, const State& state, const Options& options, Saved*) {
  return parallel_sum(weights(in, options), in, state, options);
}

Result chunked(const Inputs& in, const State& state, const Options& options, Saved*) {
  check_scores(in, state, options, forms::kChunked);
  return chunked_sum(weights(in, options), in, state, options);
}

State zero_state(const Inputs& in, const c10::SymInt&, const Options& options) {
  c10::SymInt F = 1;
  for (int64_t n = 1; n <= options.order; ++n) F = F * (in.k.sym_size(3) + n) / n;  // C(K+n,n)
  return zero_sum(F, in, options);
}

void check(const Inputs& in, const State& state, const Options& o) {
  HORNER_CHECK(o.norm != "bounded", "[power] norm must be sum or none, got bounded");
  HORNER_CHECK(
      o.order >= 0 && o.order <= kMostOrder,
      "[power] order must lie in 0 .. {}, got {}",
      kMostOrder,
      o.order
  );
  HORNER_CHECK(
      o.coefficients.empty() || int64_t(o.coefficients.size()) == o.order + 1,
      "[power] coefficients must be c_0 .. c_{}, {} numbers, got {}",
      o.order,
      o.order + 1,
      o.coefficients.size()
  );
  HORNER_CHECK(
      o.norm != "sum" || o.order % 2 == 0 || o.odd,
      "[power] norm = sum needs an even order, since the sum of an odd series can vanish; got "
      "order {} "
      "(odd = true asks for it all the same)",
      o.order
  );
  HORNER_CHECK(
      !(o.log_norm && o.order % 2 == 1), "[power] log_norm needs an even order, got {}", o.order
  );
  HORNER_CHECK(
      !in.g.defined() || in.g.dim() == 3 || o.decay == "inside",
      "[power] a decay per key dim (B,T,G,K) needs decay = inside; outside takes g (B,T,G)"
  );
  const int64_t K = in.k.sym_size(3).guard_int(__FILE__, __LINE__);
  const double F = feature_count(K, o.order);
  const bool pairs = o.form == forms::kAuto || o.form == forms::kParallel ||
                     o.form == forms::kParallelKernel || o.form == forms::kDirectKernel;
  const bool features = !state.empty() || o.final_state || !pairs;
  HORNER_CHECK(
      !features || F <= kMostFeatures,
      "[power] order {} at K = {} has {:.3g} features a head; only form = parallel without a state "
      "can run",
      o.order,
      K,
      F
  );
}

// Multiply-adds: all pairs T^2/2 (K+V) against the state's T 2 F V, plus the chunk's own pairs.
bool suits_pairs(const Inputs& in, const State& state, const Options& o) {
  const double T = double(in.q.size(1)), K = double(in.q.size(3)), V = double(in.v.size(3));
  const double F = feature_count(in.q.size(3), o.order), C = double(o.chunk);
  const bool stateless = state.empty() && !o.final_state;
  const double chunked = 2 * F * V + C / 2 * (K + V), parallel = (o.causal ? T / 2 : T) * (K + V);
  return stateless && (parallel < chunked || F > kMostFeatures);
}

Inputs sample(const Dims& d, const Variant& variant, at::TensorOptions options) {
  Inputs in = sample_qkv(d, options);
  in.g = sample_decay(d, variant.gate, options);
  return in;
}

// k = 0 still has the weight c_0. So padding is allowed only if neither an earlier token nor the state sees it.
bool pads(const Inputs&, const State&, const Options& o) { return o.causal && !o.final_state; }

// C: the chunk of the kernels. Chunked forms read and write the state of F features; the others form all pairs.
Flops flops(const Dims& d, const Options& o, std::string_view form) {
  const double K = double(d.K), V = double(d.V), T = double(d.T);
  if (form != forms::kChunked && form != forms::kChunkedKernel && form != forms::kWideKernel)
    return {T * (K + V), 2.5 * T * (K + V)};
  const double C = d.K <= 32 ? 128 : 16 * K, F = feature_count(d.K, o.order);
  return {C * (K + V) + 4 * F * V, 2.5 * C * (K + V) + 10 * F * V};
}

Recurrence recurrence(const Inputs& in, const Options& o) {
  const auto W = monomial_weights(in.k.size(3), series(o));
  const double scale = o.scale.value_or(1.0 / std::sqrt(double(in.q.size(3))));
  at::Tensor g = diagonal_decay(in);
  if (in.g.defined() && o.decay == "inside") g = monomial_sums(g.expand_as(in.k), o.order);
  Recurrence r{
      g.exp(),
      monomials(in.k, o.order),
      monomials(scale * in.q, o.order) * constant(W, in.q.options()),
      in.v,
      {}};
  if (o.norm == "sum") r.eta = weight_sums(weights(in, o), in, o);
  return r;
}

}  // namespace

double score_where(const std::vector<double>& c, double most) {
  double low = 0, high = 1e12;  // p grows with r
  for (int i = 0; i < 100; ++i) {
    const double r = (low + high) / 2;
    double p = 0;
    for (size_t n = c.size(); n-- > 0;) p = p * r + std::abs(c[n]);
    (p <= most ? low : high) = r;
  }
  return low;
}

double trusted_score(const Options& options) { return score_where(series(options), kTrusted); }

double feature_count(int64_t K, int64_t order) {
  double F = 1;
  for (int64_t n = 1; n <= order; ++n) F = F * double(K + n) / double(n);
  return F;
}

at::Tensor monomials(const at::Tensor& x, int64_t order) {
  return by_order(x, order, at::ones_like(x.narrow(-1, 0, 1)), [](const auto& a, const auto& b) {
    return a * b;
  });
}

at::Tensor monomial_sums(const at::Tensor& g, int64_t order) {
  return by_order(g, order, at::zeros_like(g.narrow(-1, 0, 1)), [](const auto& a, const auto& b) {
    return a + b;
  });
}

std::vector<double> monomial_weights(int64_t K, const std::vector<double>& c) {
  struct Monomial {
    int64_t first, run;  // first factor, how often it occurs
    double ways;         // n! / (m_1! .. m_K!)
  };
  std::vector<double> all = {c[0]};
  std::vector<Monomial> last = {{K, 0, 1.0}};
  for (size_t n = 1; n < c.size(); ++n) {
    std::vector<Monomial> row;
    for (int64_t i = 0; i < K; ++i) {
      for (const Monomial& m : last) {
        if (m.first < i) continue;
        const int64_t run = m.first == i ? m.run + 1 : 1;
        row.push_back({i, run, m.ways * double(n) / double(run)});
        all.push_back(c[n] * row.back().ways);
      }
    }
    last = std::move(row);
  }
  return all;
}

at::Tensor polynomial(const at::Tensor& x, const std::vector<double>& c) {
  if (c.size() == 1) return at::full_like(x, c[0]);
  at::Tensor p = x * c.back() + c[c.size() - 2];
  for (size_t n = c.size() - 2; n-- > 0;) p = p * x + c[n];  // Horner: p <- p x + c_n
  return p;
}

std::vector<double> series(const Options& options) {
  if (!options.coefficients.empty()) return options.coefficients;
  std::vector<double> c = {1.0};
  for (int64_t n = 1; n <= options.order; ++n) c.push_back(c.back() / double(n));
  return c;
}

namespace {

// The settings that the contract walks.
std::vector<Variant> variants(const Options& defaults) {
  Options second = defaults, fourth = second, bare = second, square = second, inside = second,
          both = second, zeroth = second;
  second.log_norm = true;
  fourth.order = 4;
  bare.order = 3;
  bare.norm = "none";
  square.coefficients = {0, 0, 1};
  inside.decay = "inside";
  both.causal = false;
  zeroth.order = 0;
  return {
      {"order 2", second},
      {"order 2, decay per head", second, "head"},
      {"order 4", fourth},
      {"order 3, no norm", bare, "head"},
      {"square alone", square, "head"},
      {"decay inside, per head", inside, "head"},
      {"decay inside, per key", inside, "key"},
      {"both directions", both},
      {"both, decay per head", both, "head"},
      {"order 0", zeroth},
  };
}

}  // namespace

Op power_op() {
  Op op{
      .name = "power",
      .equation =
          "S_t = a_t S_{t-1} + m(k_t)^T v_t,  o_t = (W m(q_t)) S_t / den_t: "
          "sum_n c_n (scale q.k)^n",
      .inputs = {kQ, kK, kV, kMaybeG},
      .options =
          {"form",
           "chunk",
           "scale",
           "causal",
           "order",
           "coefficients",
           "decay",
           "norm",
           "odd",
           "eps",
           "log_norm",
           "final_state"},
      .series = true,
      .forms =
          {{.name = forms::kRecurrent, .forward = recurrent, .suits = never},
           kernel_form(forms::kStepKernel),
           kernel_form(forms::kChunkedKernel),
           kernel_form(forms::kWideKernel),
           kernel_form(forms::kParallelKernel),
           kernel_form(forms::kDirectKernel),
           step_form(recurrent),
           {.name = forms::kParallel, .forward = parallel, .suits = suits_pairs},
           {.name = forms::kChunked, .forward = chunked}},
      .zero_state = zero_state,
      .sample = sample,
      .check = check,
      .pads = pads,
      .flops = flops,
      .recurrence = recurrence,
  };
  op.defaults.norm = "sum";
  op.defaults.chunk = 128;
  op.variants = variants(op.defaults);
  return op;
}

}  // namespace horner
