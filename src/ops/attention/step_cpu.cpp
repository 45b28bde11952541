#include "ops/attention/step_cpu.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "core/threads.h"
#include "ops/attention/plain.h"
#include "ops/attention/vectors.h"

namespace horner {
namespace {

using namespace vectors;

constexpr int64_t kBlock = 64;       // keys whose scores are kept; a multiple of kLanes
constexpr int64_t kPart = 1024;      // keys of a task
constexpr int64_t kGrain = 1 << 17;  // bytes of keys and values that are worth a thread

template <class T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<double> {
  using Type = double;
};

// Keys and values of one row and head.
template <class T>
struct Keys {
  const T *k = nullptr, *v = nullptr;
  int64_t count = 0;
};

// r queries over some keys: the largest score m, the sum l of the weights e^{x - m}, and o, the
// values with these weights.
template <class A>
struct Sums {
  const A* q;    // (r,K), scaled, padded with zeros to whole vectors
  A *m, *l, *o;  // (r), (r), (r,V) padded likewise
  int64_t r, K, V;
  A clamp;

  int64_t padded_K() const { return (K + kLanes - 1) / kLanes * kLanes; }
  int64_t padded_V() const { return (V + kLanes - 1) / kLanes * kLanes; }
};

// x_s of 16 keys, or `n` of them.
template <class A, class T>
HORNER_INLINE Vector<A> scores(const A* q, const T* k, int64_t K, int64_t n) {
  Vector<A> sum[kLanes] = {};
  const int64_t whole = K / kLanes * kLanes;
  for (int64_t j = 0; j < n; ++j) {
    const T* key = k + j * K;
    Vector<A> dot = {};
    for (int64_t i = 0; i < whole; i += kLanes) dot += load(q + i) * load(key + i);
    if (whole < K) dot += load(q + whole) * load_some(key + whole, K - whole);
    sum[j] = dot;
  }
  return sums<A>(sum);
}

// o += sum_j p_j v_j for kWide vectors of columns from c on.
template <int kWide, class A, class T>
HORNER_INLINE void add_values(A* o, const A* p, const T* v, int64_t V, int64_t n) {
  Vector<A> sum[kWide];
  for (int i = 0; i < kWide; ++i) sum[i] = load(o + i * kLanes);
  for (int64_t j = 0; j < n; ++j) {
    for (int i = 0; i < kWide; ++i) sum[i] += p[j] * load(v + j * V + i * kLanes);
  }
  for (int i = 0; i < kWide; ++i) store(o + i * kLanes, sum[i]);
}

template <class A, class T>
HORNER_INLINE void add_block(const Sums<A>& s, const T* k, const T* v, int64_t n) {
  alignas(64) A p[kBlock];
  for (int64_t h = 0; h < s.r; ++h) {
    const Vector<A> most = Vector<A>{} + s.clamp;
    Vector<A> high = Vector<A>{} - std::numeric_limits<A>::infinity();
    for (int64_t j = 0; j < n; j += kLanes) {
      const int64_t some = std::min(kLanes, n - j);
      Vector<A> x = scores(s.q + h * s.padded_K(), k + j * s.K, s.K, some);
      x = x > most ? most : x;
      for (int64_t i = some; i < kLanes; ++i) x[i] = -std::numeric_limits<A>::infinity();
      high = x > high ? x : high;
      store(p + j, x);
    }
    A m = s.m[h];
    for (int64_t i = 0; i < kLanes; ++i) m = high[i] > m ? high[i] : m;
    if (m == -std::numeric_limits<A>::infinity()) m = 0;  // all scores are NaN or -inf
    A* o = s.o + h * s.padded_V();
    if (m != s.m[h]) {
      const A shrink = std::exp(s.m[h] - m);
      s.l[h] *= shrink;
      for (int64_t i = 0; i < s.padded_V(); ++i) o[i] *= shrink;
      s.m[h] = m;
    }
    Vector<A> l = {};
    for (int64_t j = 0; j < n; j += kLanes) {
      Vector<A> e = exponential(load(p + j) - m);
      for (int64_t i = n - j; i < kLanes; ++i) e[i] = 0;
      l += e;
      store(p + j, e);
    }
    for (int64_t i = 0; i < kLanes; ++i) s.l[h] += l[i];
    int64_t c = 0;
    for (; c + 4 * kLanes <= s.V; c += 4 * kLanes) add_values<4>(o + c, p, v + c, s.V, n);
    for (; c + kLanes <= s.V; c += kLanes) add_values<1>(o + c, p, v + c, s.V, n);
    for (int64_t j = 0; c < s.V && j < n; ++j) {
      const Vector<A> y = load(o + c) + p[j] * load_some(v + j * s.V + c, s.V - c);
      store(o + c, y);
    }
  }
}

template <class A, class T>
HORNER_INLINE void add_all(const Sums<A>& s, const Keys<T>& keys) {
  for (int64_t j = 0; j < keys.count; j += kBlock) {
    add_block(s, keys.k + j * s.K, keys.v + j * s.V, std::min(kBlock, keys.count - j));
  }
}

// The same loops for several targets; the compiler picks the instructions of each.
template <class A, class T>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma")]] void add_avx512(
    const Sums<A>& s, const Keys<T>& keys
) {
  add_all(s, keys);
}
template <class A, class T>
[[gnu::target("avx2,fma")]] void add_avx2(const Sums<A>& s, const Keys<T>& keys) {
  add_all(s, keys);
}
template <class A, class T>
void add_plain(const Sums<A>& s, const Keys<T>& keys) {
  add_all(s, keys);
}

template <class A, class T>
auto chosen_loop() {
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx512 ? &add_avx512<A, T> : avx2 ? &add_avx2<A, T> : &add_plain<A, T>;
}

// f(i) for i < n; on torch's threads if there are enough bytes to read.
template <class F>
void for_each_task(int64_t n, int64_t bytes, const F& f) {
  std::atomic<int64_t> next = 0;
  on_threads(std::min(n, bytes / kGrain), [&](const Team&) {
    for (int64_t i = next++; i < n; i = next++) f(i);
  });
}

template <class T>
struct Step {
  using A = typename Wide<T>::Type;
  const Inputs& in;
  const State& state;
  const Options& o;
  at::Tensor q, k, v, seen;  // as they are read
  std::vector<at::Tensor> caches;
  int64_t B, H, G, r, K, V, S;

  Step(const Inputs& inputs, const State& before, const Options& options)
      : in(inputs), state(before), o(options) {
    q = in.q.contiguous();
    k = in.k.contiguous();
    v = in.v.contiguous();
    B = q.size(0), H = q.size(2), K = q.size(3), G = k.size(2), V = v.size(3), r = H / G;
    S = state.empty() ? 0 : state.parts[0].size(2);
    if (state.empty()) return;
    seen = state.parts[2].contiguous();
    caches = {readable(state.parts[0]), readable(state.parts[1])};
    if (o.sinks == 0) return;
    const Sinks sinks = attention_sinks(in, state, o);
    caches.push_back(readable(sinks.k));
    caches.push_back(readable(sinks.v));
  }

  // Slots must be contiguous; rows and heads may have any stride.
  static at::Tensor readable(const at::Tensor& x) {
    const at::Tensor y = x.to(c10::CppTypeToScalarType<T>::value);
    const int64_t X = y.size(3);
    const bool fine = (X == 1 || y.stride(3) == 1) && (y.size(2) == 1 || y.stride(2) == X);
    return fine ? y : y.contiguous();
  }
  const T* at(size_t part, int64_t b, int64_t g, int64_t slot) const {
    const at::Tensor& x = caches[part];
    return x.const_data_ptr<T>() + b * x.stride(0) + g * x.stride(1) + slot * x.size(3);
  }

  int64_t before(int64_t b, int64_t g) const {  // tokens that row b has seen
    return state.empty() ? 0 : seen.const_data_ptr<int64_t>()[b * G + g];
  }
  // Cached keys that the new token can see.
  int64_t count(int64_t b, int64_t g) const {
    const int64_t held = std::min(before(b, g), S);
    return o.window > 0 ? std::min(held, o.window - 1) : held;
  }

  void add(const Sums<A>& sums, int64_t b, int64_t g, int64_t part) const {
    const auto loop = chosen_loop<A, T>();
    const int64_t held = count(b, g), from = part * kPart, n = std::min(kPart, held - from);
    if (n > 0) loop(sums, {at(0, b, g, S - held + from), at(1, b, g, S - held + from), n});
    if (part > 0) return;
    const int64_t own = b * G + g;
    loop(sums, {k.const_data_ptr<T>() + own * K, v.const_data_ptr<T>() + own * V, 1});
    const int64_t far = o.sinks == 0 || state.empty() ? 0 : before(b, g) - o.window + 1;
    if (far > 0) loop(sums, {at(2, b, g, 0), at(3, b, g, 0), std::min(o.sinks, far)});
  }

  Result run() const {
    const int64_t padded_K = (K + kLanes - 1) / kLanes * kLanes;
    const int64_t padded_V = (V + kLanes - 1) / kLanes * kLanes;
    const double scale = attention_scale(in, o);
    const int64_t parts = std::max<int64_t>(1, (S + kPart - 1) / kPart), tasks = B * G * parts;
    std::vector<A> queries(size_t(B * H * padded_K));
    const T* from = q.const_data_ptr<T>();
    for (int64_t i = 0; i < B * H * K; ++i)
      queries[size_t(i / K * padded_K + i % K)] = A(double(from[i]) * scale);
    const int64_t width = r * (padded_V + 2);  // of a task: o, m, l
    std::vector<A> memory(size_t(tasks * width));
    const auto sums_of = [&](int64_t task) {
      A* own = memory.data() + task * width;
      const int64_t bg = task / parts;
      const A clamp = o.clamp ? A(*o.clamp) : std::numeric_limits<A>::infinity();
      return Sums<A>{queries.data() + bg * r * padded_K, own, own + r, own + 2 * r, r, K, V, clamp};
    };
    const int64_t bytes = B * G * S * (K + V) * int64_t(sizeof(T));
    for_each_task(tasks, bytes, [&](int64_t task) {
      const Sums<A> s = sums_of(task);
      std::fill(s.m, s.m + r, -std::numeric_limits<A>::infinity());
      const int64_t bg = task / parts;
      add(s, bg / G, bg % G, task % parts);
    });
    return merged(sums_of, parts, padded_V);
  }

  template <class F>
  Result merged(const F& sums_of, int64_t parts, int64_t padded_V) const {
    Result y;
    y.o = at::empty({B, 1, H, V}, v.options());
    if (o.log_norm)
      y.norm = at::empty({B, 1, H}, v.options().dtype(c10::CppTypeToScalarType<A>::value));
    T* out = y.o.template mutable_data_ptr<T>();
    std::vector<A> row(static_cast<size_t>(padded_V));
    for (int64_t h = 0; h < B * H; ++h) {
      const int64_t bg = h / r, own = h % r;
      A m = -std::numeric_limits<A>::infinity(), l = 0;
      std::fill(row.begin(), row.end(), A(0));
      for (int64_t part = 0; part < parts; ++part)
        m = std::max(m, sums_of(bg * parts + part).m[own]);
      for (int64_t part = 0; part < parts; ++part) {
        const Sums<A> s = sums_of(bg * parts + part);
        if (s.l[own] == 0) continue;  // no key
        const A weight = std::exp(s.m[own] - m);
        l += weight * s.l[own];
        for (int64_t i = 0; i < V; ++i) row[size_t(i)] += weight * s.o[own * padded_V + i];
      }
      for (int64_t i = 0; i < V; ++i) out[h * V + i] = T(row[size_t(i)] / l);
      if (o.log_norm) y.norm.template mutable_data_ptr<A>()[h] = m + std::log(l);
    }
    return y;
  }
};

template <class T>
Result run_step(const Inputs& in, const State& state, const Options& o) {
  Result y = Step<T>(in, state, o).run();
  if (o.final_state) y.state = attention_next_state(in, state, o);
  return y;
}

}  // namespace

std::string attention_step_cpu_refuses(const Inputs& in, const State& state, const Options& o) {
  if (has_fixed_caches(state)) return "it takes no fixed caches";
  if (in.q.size(1) != 1 || in.cu_seqlens.defined() || in.lengths.defined())
    return "it takes one token";
  if (!o.causal) return "it reads the past";
  if (in.v.numel() == 0 || in.q.numel() == 0) return "there is nothing to compute";
  return "";
}

Result attention_step_cpu(const Inputs& in, const State& state, const Options& o) {
  switch (in.v.scalar_type()) {
    case at::kDouble: return run_step<double>(in, state, o);
    case at::kBFloat16: return run_step<c10::BFloat16>(in, state, o);
    default: return run_step<float>(in, state, o);
  }
}

}  // namespace horner
