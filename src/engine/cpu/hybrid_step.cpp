// One token of one head of a HybridLayer.
#include <algorithm>
#include <cmath>

#include "engine/cpu/hybrid_layer.h"
#include "engine/cpu/recurrence.h"
#include "engine/cpu/slots.h"

namespace horner {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// y = x / sqrt(|x|^2 + 1e-6 scale^2): of x / scale, unit_length in nn/norm.h
void unit_length(const float* x, int64_t n, double scale, float* y) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double(x[i]) * double(x[i]);
  const auto by = float(1 / std::sqrt(squares + 1e-6 * scale * scale));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * by;
}

}  // namespace

template <class T>
void HybridLayer::put(std::byte* near, const Token& token) const {
  const int64_t at = slot(token.place), page = at / kPage;
  T* keys = reinterpret_cast<T*>(near) + page * page_slots_ * (K_ + padded_V_);
  put_token(token.k, K_, token.v, V_, at % kPage, keys, keys + page_slots_ * K_);
}

template <class T>
void HybridLayer::get(const std::byte* near, int64_t place, float* k, float* v) const {
  const int64_t at = slot(place), page = at / kPage;
  const T* keys = reinterpret_cast<const T*>(near) + page * page_slots_ * (K_ + padded_V_);
  get_token(keys, keys + page_slots_ * K_, at % kPage, K_, k, V_, v);
}

void HybridLayer::attend_near(Head& head, const std::byte* near, const Part& part) const {
  Attend task;
  task.K = K_, task.V = padded_V_, task.q = head.token.q;
  task.begins = first_, task.ends = last_;
  task.first_page = near, task.page_bytes = page_slots_ * (K_ + padded_V_) * (wide_ ? 4 : 2);
  task.wide = wide_;
  task.keys = 0, task.values = page_slots_ * K_;
  task.begin = 0, task.end = std::min(head.token.place + 1, o_.sinks + o_.window);
  task.m = part.m, task.l = part.l, task.o = part.o;
  attend(task);
}

void HybridLayer::step(int64_t g, const Token& token, std::byte* state, float* scratch) const {
  std::byte* near = state + begin_ + g * head_bytes_;
  auto* S = reinterpret_cast<float*>(near + near_bytes_);
  Head head{g, token, S, S + F_ * padded_V_, S + F_ * padded_V_ + padded_F_, scratch};
  // The token that leaves the window now stands in the slot of the new one.
  const int64_t left = token.place - o_.window;
  const bool beyond = F_ > 0 && left >= o_.sinks;  // there are far tokens
  float *k = head.take(K_), *v = head.take(padded_V_);
  std::fill_n(v, padded_V_, 0.f);
  if (beyond && reads_left())
    wide_ ? get<float>(near, left, k, v) : get<uint16_t>(near, left, k, v);
  wide_ ? put<float>(near, token) : put<uint16_t>(near, token);
  const Part own = head.take_part(r_, padded_V_), far = head.take_part(r_, padded_V_);
  attend_near(head, near, own);
  if (beyond && reads_left()) read_left(head, k, v, far);
  if (F_ > 0 && !reads_left()) read_all(head, far);
  for (int64_t i = 0; i < r_; ++i) {
    const float *o = own.o + i * padded_V_, *other = far.o + i * padded_V_;
    float near_share = 1 / own.l[i], far_share = 0;
    if (beyond) {  // e^m / (e^m l + e^m' l')
      const float bias = reads_left() ? far_bias_[size_t(g * r_ + i)] : 0;
      const float m = std::max(own.m[i], far.m[i] + bias);
      const float a = std::exp(own.m[i] - m), b = std::exp(far.m[i] + bias - m);
      const float sum = a * own.l[i] + b * far.l[i];
      near_share = a / sum, far_share = b / sum;
    }
    float* y = token.o + i * V_;
    for (int64_t c = 0; c < V_; ++c) y[c] = o[c] * near_share;
    if (!beyond) continue;
    for (int64_t c = 0; c < V_; ++c) y[c] += other[c] * far_share;
  }
}

// ---- what left the window ------------------------------------------------------------------------

void HybridLayer::read_centres(Head& head, const float* k, const float* v, const Part& part) const {
  float* rows =
      head.take((r_ + 1) * K_);  // the queries and the key, which read the centres together
  float* x = head.take((r_ + 1) * padded_F_);
  std::copy_n(head.token.q, r_ * K_, rows);
  std::copy_n(k, K_, rows + r_ * K_);
  const float* mu = reinterpret_cast<const float*>(centres_.get()) + head.g * padded_F_ * K_;
  group_dots({rows, r_ + 1, mu, K_, padded_F_, x, padded_F_});
  const int64_t c =
      nearest_centre(x + r_ * padded_F_, half_squares_.data() + head.g * padded_F_, padded_F_);
  for (int64_t d = 0; d < padded_V_; ++d) head.S[c * padded_V_ + d] += v[d];
  head.z[c] += 1;
  for (int64_t i = 0; i < r_; ++i) {
    const Weighed w = weigh_centres(x + i * padded_F_, head.z, padded_F_);
    part.m[i] = w.m, part.l[i] = w.l;
  }
  sweep({head.S, F_, padded_V_, x, r_, padded_F_, part.o});
}

// 1, x_i, x_i x_j for i <= j, each times its weight.
void HybridLayer::monomials(const float* x, const float* weights, float* y) const {
  y[0] = 1;
  int64_t at = 1;
  for (int64_t i = 0; i < K_ && at < F_; ++i) y[at++] = x[i];
  for (int64_t i = 0; i < K_ && at < F_; ++i)
    for (int64_t j = i; j < K_; ++j) y[at++] = x[i] * x[j];
  for (int64_t f = 0; weights != nullptr && f < F_; ++f) y[f] *= weights[f];
}

// The features of a query or key x / scale; y is padded by zeros.
void HybridLayer::map(bool key, int64_t h, const float* x, float scale, float* y) const {
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < K_; ++i) y[i] = f(x[i] * scale);
  };
  if (o_.feature == "elu1") {
    each([](float z) { return z > 0 ? z + 1 : std::exp(z); });
  } else if (o_.feature == "relu") {
    each([](float z) { return std::max(z, 0.f); });
  } else if (o_.feature == "relu2") {
    each([](float z) { return z > 0 ? z * z : 0.f; });
  } else if (o_.feature == "exp") {
    softmax_row(x, scale, K_, y);
  } else {
    const int64_t n = (K_ + 15) / 16 * 16;
    float* z = y + padded_F_;  // behind the features
    const float* A = (key ? for_k_ : for_q_).data() + h * n * K_;
    group_dots({x, 1, A, K_, n, z, n});
    softmax_row(z, scale, K_, z + n);
    std::copy_n(z + n, K_, y);
    softmax_row(z, -scale, K_, z + n);
    std::copy_n(z + n, K_, y + K_);
  }
}

void HybridLayer::read_left(Head& head, const float* k, const float* v, const Part& part) const {
  if (o_.far == "centres") return read_centres(head, k, v, part);
  float *u = head.take(padded_F_), *p = head.take(r_ * padded_F_);
  float* last = head.take(padded_F_ + 2 * (K_ + 15));  // one row, and what `map` needs behind it
  std::fill_n(u, (r_ + 1) * padded_F_, 0.f);
  const auto into = [&](float* row, auto f) {
    f(last);
    std::copy_n(last, F_, row);
  };
  const float* mu = o_.far == "taylor" ? centre_.data() + head.g * K_ : nullptr;
  const auto root = float(std::sqrt(double(K_)));
  into(u, [&](float* row) {
    if (mu == nullptr) return map(true, head.g, k, 1, row);
    float* rest = head.take(K_);
    for (int64_t d = 0; d < K_; ++d) rest[d] = k[d] - mu[d];
    monomials(rest, nullptr, row);
  });
  for (int64_t i = 0; i < r_; ++i) {
    const float* q = head.token.q + i * K_;
    part.m[i] = 0;
    for (int64_t d = 0; mu != nullptr && d < K_; ++d) part.m[i] += q[d] * mu[d];  // log e^{q.mu}
    into(p + i * padded_F_, [&](float* row) {
      mu == nullptr ? map(false, head.g * r_ + i, q, root, row)
                    : monomials(q, term_weights_.data(), row);
    });
  }
  for (int64_t f = 0; f < F_; ++f) head.z[f] += u[f];
  sweep({head.S, F_, padded_V_, p, r_, padded_F_, part.o, ones_.data(), u, v});
  for (int64_t i = 0; i < r_; ++i)
    part.l[i] = std::max(dot_row(p + i * padded_F_, head.z, padded_F_), 1e-30f);
}

// ---- all tokens ----------------------------------------------------------------------------------

// a = e^{-softplus(rate)} = sigmoid(-rate)
void HybridLayer::decays(Head& head, float* a) const {
  const int64_t row = o_.heads + (is_delta() || o_.far == "mlstm" ? G_ : 0);
  if (!decays_per_key()) {
    std::fill_n(a, K_, sigmoid(-gate_number(head, row + head.g)));
    return;
  }
  float* rate = head.take(padded_F_);
  const float* bias = decay_bias_.data() + head.g * padded_F_;
  const float* up = decay_.data() + head.g * padded_F_ * o_.rank;
  group_dots({head.token.gates + row, 1, up, o_.rank, padded_F_, rate, padded_F_});
  for (int64_t d = 0; d < padded_F_; ++d) rate[d] = -(rate[d] + bias[d]);
  sigmoid_row(rate, padded_F_, a);
}

// o = far_scale y + far_mean, y over its root mean square where the mixer has that; m = log n + the estimated log weight.
void HybridLayer::read_all(Head& head, const Part& part) const {
  const Token& t = head.token;
  const double scale = t.far_q == t.q ? 1 / std::sqrt(double(K_)) : 1;
  float *p = head.take(r_ * padded_F_), *k = head.take(padded_F_), *u = head.take(padded_F_);
  float *a = head.take(padded_F_), *v = head.take(padded_V_);
  std::fill(p, v + padded_V_, 0.f);
  for (int64_t i = 0; i < r_; ++i) unit_length(t.far_q + i * K_, K_, scale, p + i * padded_F_);
  unit_length(t.far_k, K_, 1, k);
  std::copy_n(t.v, V_, v);
  decays(head, a);
  float gain = 1, floor = 0;
  if (is_delta()) {
    float* error = head.take(padded_V_);
    for (int64_t d = 0; d < K_; ++d) u[d] = k[d] * a[d];
    sweep({head.S, K_, padded_V_, u, 1, padded_F_, error});
    for (int64_t c = 0; c < V_; ++c) v[c] -= error[c];
    gain = sigmoid(gate_number(head, o_.heads + head.g));
  } else if (o_.far == "mlstm") {
    const float input = 15 * std::tanh(gate_number(head, o_.heads + head.g) / 15);
    const float carried = t.place > 0 ? std::log(a[0]) + *head.m : -INFINITY;
    *head.m = std::max(carried, input);
    std::fill_n(a, K_, std::exp(carried - *head.m));
    gain = std::exp(input - *head.m), floor = std::exp(-*head.m);
  }
  for (int64_t d = 0; d < K_; ++d) u[d] = gain * k[d];
  sweep({head.S, K_, padded_V_, p, r_, padded_F_, part.o, a, u, v});
  for (int64_t d = 0; d < K_; ++d) head.z[d] = a[d] * head.z[d] + u[d];  // read by mlstm
  for (int64_t i = 0; i < r_; ++i) {
    float by = 1;
    if (o_.far == "mlstm")
      by = 1 / std::max(std::abs(dot_row(p + i * padded_F_, head.z, padded_F_)), floor);
    float* o = part.o + i * padded_V_;
    if (o_.far == "mlstm" || o_.far == "gla")  // o by / rms(o by)
      by /= std::sqrt(by * by * dot_row(o, o, padded_V_) / float(V_) + 1e-5f);
    const int64_t h = head.g * r_ + i;
    by *= far_scale_[size_t(h)];
    const float* mean = far_mean_.data() + h * padded_V_;
    for (int64_t c = 0; c < V_; ++c) o[c] = o[c] * by + mean[c];
    const auto far_tokens = double(t.place + 1 - o_.window - o_.sinks);
    part.l[i] = 1;
    part.m[i] = float(std::log(std::max(far_tokens, 1.0))) + gate_number(head, h);
  }
}

}  // namespace horner
