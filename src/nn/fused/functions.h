// Functions of single numbers with their derivatives, for kernels and, in fp64, for the test of the formulas on a CPU.
//
//   function       computes
//   RgLruGates     g = -c s(r + b),  v = sqrt(1 - e^{2g}) s(i + d) u; the first token of a sequence: v = s(i + d) u
//   QlstmGates     g = log s(f),     v = s(i) u
//   QlstmOut       y = s(o) h gelu(z)
//   GeluGate       y = h gelu(z), by tanh
//
// s is the sigmoid. A function has kIn inputs x, kColumns weights c (one per column), kRows numbers of the row, and kOut
// results y. Bit j of kWideIn says that input j is fp32 whatever the others are; kWideOut: the results are.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define HORNER_BOTH __host__ __device__
#else
#define HORNER_BOTH
#endif

namespace horner {

enum class Pointwise : int64_t { rg_lru_gates, qlstm_gates, qlstm_out, gelu_gate };

template <class R>
HORNER_BOTH R logistic(R x) {
  using std::exp;
  return 1 / (1 + exp(-x));
}
template <class R>
HORNER_BOTH R log_logistic(R x) {
  using std::exp, std::log1p, std::fabs;
  return (x < 0 ? x : R(0)) - log1p(exp(-fabs(x)));
}

// gelu and its derivative.
template <class R>
struct Gelu {
  R value, slope;
};
template <class R>
HORNER_BOTH Gelu<R> gelu_erf(R x) {
  using std::erf, std::exp;
  const R below = R(0.5) * (1 + erf(x * R(0.70710678118654752)));
  return {x * below, below + x * R(0.39894228040143268) * exp(-x * x / 2)};
}
template <class R>
HORNER_BOTH Gelu<R> gelu_tanh(R x) {
  using std::tanh;
  const R a = R(0.79788456080286536), b = R(0.044715), t = tanh(a * (x + b * x * x * x));
  return {x * (1 + t) / 2, (1 + t) / 2 + x / 2 * (1 - t * t) * a * (1 + 3 * b * x * x)};
}

struct RgLruGates {  // x: r, i, u     c: b, d, c     row: first token     y: g, v
  static constexpr int kIn = 3, kColumns = 3, kRows = 1, kOut = 2, kWideIn = 0;
  static constexpr bool kWideOut = true;
  template <class R>
  HORNER_BOTH static R root(R first, R g) {  // at a = 1 it has no derivative
    using std::expm1, std::sqrt;
    const R square = -expm1(2 * g);
    return first > 0 ? R(1) : square > 0 ? sqrt(square) : R(0);
  }
  template <class R>
  HORNER_BOTH static void forward(const R* x, const R* c, const R* row, R* y) {
    y[0] = -c[2] * logistic(x[0] + c[0]);
    y[1] = root(row[0], y[0]) * logistic(x[1] + c[1]) * x[2];
  }
  template <class R>
  HORNER_BOTH static void backward(
      const R* x, const R* c, const R* row, const R* dy, R* dx, R* dc
  ) {
    using std::exp;
    const R p = logistic(x[0] + c[0]), i = logistic(x[1] + c[1]), g = -c[2] * p;
    const R gamma = root(row[0], g);
    R dg = dy[0];
    if (row[0] <= 0 && gamma > 0) dg -= dy[1] * i * x[2] * exp(2 * g) / gamma;
    dx[0] = dc[0] = -c[2] * p * (1 - p) * dg;
    dx[1] = dc[1] = dy[1] * gamma * x[2] * i * (1 - i);
    dx[2] = dy[1] * gamma * i;
    dc[2] = -p * dg;
  }
};

struct QlstmGates {  // x: f, i, u     y: g, v
  static constexpr int kIn = 3, kColumns = 0, kRows = 0, kOut = 2, kWideIn = 0;
  static constexpr bool kWideOut = true;
  template <class R>
  HORNER_BOTH static void forward(const R* x, const R*, const R*, R* y) {
    y[0] = log_logistic(x[0]);
    y[1] = logistic(x[1]) * x[2];
  }
  template <class R>
  HORNER_BOTH static void backward(const R* x, const R*, const R*, const R* dy, R* dx, R*) {
    const R i = logistic(x[1]);
    dx[0] = dy[0] * logistic(-x[0]);
    dx[1] = dy[1] * x[2] * i * (1 - i);
    dx[2] = dy[1] * i;
  }
};

struct QlstmOut {  // x: o, h (fp32), z     y
  static constexpr int kIn = 3, kColumns = 0, kRows = 0, kOut = 1, kWideIn = 0b010;
  static constexpr bool kWideOut = false;
  template <class R>
  HORNER_BOTH static void forward(const R* x, const R*, const R*, R* y) {
    y[0] = logistic(x[0]) * x[1] * gelu_erf(x[2]).value;
  }
  template <class R>
  HORNER_BOTH static void backward(const R* x, const R*, const R*, const R* dy, R* dx, R*) {
    const R o = logistic(x[0]);
    const Gelu<R> z = gelu_erf(x[2]);
    dx[0] = dy[0] * x[1] * z.value * o * (1 - o);
    dx[1] = dy[0] * o * z.value;
    dx[2] = dy[0] * o * x[1] * z.slope;
  }
};

struct GeluGate {  // x: h (fp32), z     y
  static constexpr int kIn = 2, kColumns = 0, kRows = 0, kOut = 1, kWideIn = 0b01;
  static constexpr bool kWideOut = false;
  template <class R>
  HORNER_BOTH static void forward(const R* x, const R*, const R*, R* y) {
    y[0] = x[0] * gelu_tanh(x[1]).value;
  }
  template <class R>
  HORNER_BOTH static void backward(const R* x, const R*, const R*, const R* dy, R* dx, R*) {
    const Gelu<R> z = gelu_tanh(x[1]);
    dx[0] = dy[0] * z.value;
    dx[1] = dy[0] * x[0] * z.slope;
  }
};

// visit(F{}) of the function.
template <class Visit>
auto with_function(Pointwise f, const Visit& visit) {
  switch (f) {
    case Pointwise::rg_lru_gates: return visit(RgLruGates{});
    case Pointwise::qlstm_gates: return visit(QlstmGates{});
    case Pointwise::qlstm_out: return visit(QlstmOut{});
    case Pointwise::gelu_gate: break;
  }
  return visit(GeluGate{});
}

}  // namespace horner
