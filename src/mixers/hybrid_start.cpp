// The closed-form start of `hybrid`; the table of what is set stands in start.h.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "core/check.h"
#include "mixers/hybrid.h"
#include "mixers/start.h"
#include "nn/precision.h"

namespace horner {
namespace {

constexpr double kLeastShare =
    1e-4;  // of weight beyond the window: smaller ones are mostly rounding

at::Tensor of_groups(const at::Tensor& x, int64_t G) { return x.unflatten(0, {G, -1}).mean(1); }

at::Tensor sum_of_heads(const at::Tensor& x) {
  return x.sum(-1).flatten(0, 1).sum(0);
}  // (B,T,H,V)

}  // namespace

void Hybrid::calibrate(const at::Tensor& x) {
  const c10::NoGradGuard no_graph;
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  HeadStatistics s = measure(project(x, pass).in, o_.window, o_.sinks);
  s.x = x;
  start(s);
}

void Hybrid::start(const HeadStatistics& s) {
  const c10::NoGradGuard no_graph;
  HORNER_CHECK(
      o_.far == "none" || s.x.defined(), "[hybrid] the start needs what the layer read, x (B,T,D)"
  );
  if (reads_left()) start_left(s);
  if (far_scale_.defined()) start_all(s);
}

// e^far_bias times the far weights' sum is softmax's, in the mean of the logs, each query by its share beyond the window.
void Hybrid::start_left(const HeadStatistics& s) {
  if (centres_.defined()) centres_.set(k_means_of_heads(s.in.k, o_.count));
  if (centre_.defined()) centre_.copy_(wide(s.in.k).flatten(0, 1).mean(0));
  far_bias_.zero_();
  const State nothing;
  const Context plain;
  Pass pass(nothing, plain);
  const Parts p = with_left(s.x, s.in, pass);
  const at::Tensor share = 1 - (p.near.norm - s.norm).exp();  // (B,T,H)
  const at::Tensor counts = (share > kLeastShare).logical_and(p.far.norm > -1e29);
  const at::Tensor weight = at::where(counts, share, 0.0);
  const at::Tensor missing = s.norm + share.clamp_min(kLeastShare).log() - p.far.norm;
  const at::Tensor sum = at::where(counts, weight * missing, 0.0).flatten(0, 1).sum(0);
  far_bias_.copy_(sum / weight.flatten(0, 1).sum(0).clamp_min(1e-6));
}

// ---- recurrences over all tokens ----------------------------------------------------------------

namespace {

// What is tried. The pieces of the text that no fit has seen decide.
constexpr double kReaches[] = {4, 1, 16};          // half-lives, in mean distances of attention
constexpr double kStrengths[] = {0.1, 0.02, 0.4};  // of writing
constexpr double kRidges[] = {1e-2, 1e-1, 1, 10};  // of the mean square of x
constexpr double kShifts[] = {0, -1, -2, -4, -8};  // of log z; e^-8 leaves the window nearly alone
constexpr double kLeast = 1e-12;

enum class Rows { all, fitted, held_out };

at::Tensor rows_of(const at::Tensor& x, Rows rows) {  // (B,..)
  if (rows == Rows::all || x.size(0) < 2) return x;
  return x.slice(0, rows == Rows::fitted ? 0 : 1, x.size(0), 2);
}

// far = c y + m for each head.   c (H,1), m (H,V)
struct FarFit {
  at::Tensor c, m;
};

struct FarTask {
  at::Tensor y, share,
      wanted;  // (B,T,H,V), (B,T,H,1), (B,T,H,V): share (c y + m) is to be `wanted`

  FarFit fitted(Rows rows) const {  // by least squares
    const auto over_tokens = [](const at::Tensor& z) { return z.flatten(0, 1).sum(0); };
    const at::Tensor z = rows_of(share, rows), f = z * rows_of(y, rows), w = rows_of(wanted, rows);
    const at::Tensor zz = over_tokens(z.square()).clamp_min(kLeast);  // (H,1)
    const at::Tensor fz = over_tokens(f * z), wz = over_tokens(w * z);
    const auto covariance = [&](const at::Tensor& a, const at::Tensor& az) {
      return (over_tokens(a * f) - az * fz / zz).sum(-1, true);
    };
    FarFit fit;
    fit.c = covariance(w, wz) / covariance(f, fz).clamp_min(kLeast);
    fit.m = (wz - fit.c * fz) / zz;
    return fit;
  }
  at::Tensor error(const FarFit& fit, Rows rows) const {  // (H)
    const at::Tensor far = rows_of(share, rows) * (rows_of(y, rows) * fit.c + fit.m);
    return sum_of_heads((rows_of(wanted, rows) - far).square());
  }
};

// y = x w + b by ridge regression with a weight of each token, for several ridges.   x (N,D), y, weight (N)
std::vector<std::pair<at::Tensor, at::Tensor>> ridge_regression(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight
) {
  const at::Tensor share = (weight / weight.sum().clamp_min(kLeast)).unsqueeze(1);
  const at::Tensor mean_x = (share * x).sum(0), mean_y = (share.squeeze(1) * y).sum();
  const at::Tensor around = x - mean_x, weighted = share * around;
  const auto on_cpu = [](const at::Tensor& z) { return z.to(at::kCPU, at::kDouble); };
  const at::Tensor A = on_cpu(at::matmul(around.t(), weighted));  // (D,D)
  const at::Tensor b = on_cpu(at::matmul(weighted.t(), (y - mean_y).unsqueeze(1)));
  const at::Tensor unit = A.diagonal().mean().clamp_min(kLeast) * at::eye(A.size(0), A.options());
  std::vector<std::pair<at::Tensor, at::Tensor>> list;
  for (const double ridge : kRidges) {
    const at::Tensor L = at::linalg_cholesky(A + ridge * unit);
    const at::Tensor w = at::cholesky_solve(b, L).squeeze(1).to(x.options());
    list.emplace_back(w, mean_y - (mean_x * w).sum());
  }
  return list;
}

}  // namespace

class Hybrid::RecurrenceStart {
 public:
  RecurrenceStart(Hybrid& mixer, const HeadStatistics& s) : mixer_(mixer), s_(s) {
    const State nothing;
    const Context plain;
    Pass pass(nothing, plain);
    p_ = mixer.project(s.x, pass);
    p_.in = s.in;
    if (mixer.o_.rotate) p_.q = s.in.q, p_.k = s.in.k;
    const Parts parts = mixer.with_all(s.x, p_, pass);
    near_ = wide(parts.near.o), near_norm_ = wide(parts.near.norm), o_ = wide(s.o);
    log_count_ = parts.far_tokens.clamp_min(0).to(o_.scalar_type()).log().unsqueeze(-1);
  }

  void run() {
    mixer_.far_scale_.fill_(1);
    choose_mass();
    choose_gates();
  }

 private:
  // No gate depends on its token yet.   reach, strength (G)
  void set_gates(const at::Tensor& reach, const at::Tensor& strength) {
    const at::Tensor distance = of_groups(s_.distance, mixer_.G_).clamp_min(1);
    const at::Tensor rate = std::log(2.0) / (reach * distance);  // half-life = reach times distance
    mixer_.decay_.weight.zero_();
    mixer_.decay_.bias.copy_(  // softplus(bias) = rate
        rate.expm1().log().repeat_interleave(mixer_.decays_per_key() ? mixer_.K_ : 1)
    );
    for (Linear* gate : {&mixer_.input_gate_, &mixer_.beta_}) {
      if (gate->bias.defined()) gate->weight.zero_(), gate->bias.zero_();
    }
    if (mixer_.beta_.bias.defined()) mixer_.beta_.bias.copy_(strength.logit());
  }

  at::Tensor read(const at::Tensor& reach, const at::Tensor& strength) {  // y (B,T,H,V)
    set_gates(reach, strength);
    const State nothing;
    const Context plain;
    Pass pass(nothing, plain);
    const at::Tensor y = mixer_.read_all(s_.x, p_, pass).o;
    return wide(y) * mixer_.factor(y).unsqueeze(-1);
  }

  at::Tensor all_groups(double value) const { return at::full({mixer_.G_}, value, o_.options()); }

  FarTask task(const at::Tensor& y, const at::Tensor& mass) const {  // mass (B,T,H)
    const at::Tensor share = (mass + log_count_ - near_norm_).sigmoid().unsqueeze(-1);
    return {y, share, o_ - (1 - share) * near_};
  }

  // An error d of log z moves the output by (1 - tau) |o - near| d, tau the share of the far tokens: its square is the
  // weight of a token. Returns w (ridges,H,D) and b (ridges,H).
  std::pair<at::Tensor, at::Tensor> fitted_mass(Rows rows) const {
    const at::Tensor tau = 1 - (near_norm_ - s_.norm).exp();  // (B,T,H)
    const at::Tensor counts = (tau > kLeastShare).logical_and(log_count_.isfinite());
    const at::Tensor log_mean_weight = s_.norm + tau.clamp_min(kLeastShare).log() - log_count_;
    const at::Tensor moved = (1 - tau).square() * (o_ - near_).square().sum(-1);
    const auto tokens = [&](const at::Tensor& z) {  // (N,H)
      return rows_of(at::where(counts, z, 0.0), rows).flatten(0, 1);
    };
    const at::Tensor x = rows_of(wide(s_.x), rows).flatten(0, 1);
    const at::Tensor y = tokens(log_mean_weight), weight = tokens(moved);
    std::vector<at::Tensor> w, b;
    for (int64_t h = 0; h < y.size(1); ++h) {
      for (const auto& [slope, at_zero] : ridge_regression(x, y.select(1, h), weight.select(1, h)))
        w.push_back(slope), b.push_back(at_zero);
    }
    const auto by_ridge = [&](const std::vector<at::Tensor>& list) {
      return at::stack(list).unflatten(0, {y.size(1), -1}).transpose(0, 1);
    };
    return {by_ridge(w), by_ridge(b)};
  }

  void choose_mass() {
    const at::Tensor y = read(all_groups(kReaches[0]), all_groups(kStrengths[0])), x = wide(s_.x);
    const auto [w, b] = fitted_mass(Rows::fitted);
    const auto [all_w, all_b] = fitted_mass(Rows::all);
    at::Tensor least = at::full({mixer_.o_.heads}, INFINITY, o_.options());
    for (int64_t i = 0; i < w.size(0); ++i) {
      const at::Tensor mass = at::matmul(x, w[i].t()) + b[i];
      for (const double shift : kShifts) {
        const FarTask tried = task(y, mass + shift);
        const at::Tensor error = tried.error(tried.fitted(Rows::fitted), Rows::held_out);
        const at::Tensor better = error < least;
        mixer_.mass_.weight.copy_(at::where(better.unsqueeze(1), all_w[i], mixer_.mass_.weight));
        mixer_.mass_.bias.copy_(at::where(better, all_b[i] + shift, mixer_.mass_.bias));
        least = at::minimum(error, least);
      }
    }
  }

  void choose_gates() {
    const at::Tensor mass = wide(mixer_.mass_(s_.x));
    at::Tensor least = all_groups(INFINITY);
    at::Tensor reach = all_groups(kReaches[0]), strength = all_groups(kStrengths[0]);
    for (const double far : kReaches) {
      for (const double write : kStrengths) {
        const FarTask tried = task(read(all_groups(far), all_groups(write)), mass);
        const FarFit fit = tried.fitted(Rows::fitted);
        const at::Tensor error = of_groups(tried.error(fit, Rows::held_out), mixer_.G_);
        const at::Tensor better = error < least;
        reach = at::where(better, far, reach), strength = at::where(better, write, strength);
        least = at::minimum(error, least);
        if (!mixer_.beta_.bias.defined()) break;  // it has no write strength
      }
    }
    const FarFit fit = task(read(reach, strength), mass).fitted(Rows::all);
    mixer_.far_scale_.copy_(fit.c.squeeze(-1));
    mixer_.far_mean_.copy_(fit.m);
  }

  Hybrid& mixer_;
  const HeadStatistics& s_;
  Projected p_;
  at::Tensor near_, near_norm_, o_;  // (B,T,H,V), (B,T,H), (B,T,H,V): the window's part, softmax
  at::Tensor log_count_;             // (B|1,T,1): log n_t, -inf where there is no far token
};

void Hybrid::start_all(const HeadStatistics& s) { RecurrenceStart(*this, s).run(); }

}  // namespace horner
