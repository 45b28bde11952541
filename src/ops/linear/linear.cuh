// Kernels of `linear`. The forward and every gradient are the same sweep over time, with other tensors as q, k and v:
//
//   forward   S_t = a_t S_{t-1} + k_t^T v_t                 y_t = q_t S_t
//   reverse   S_t = a_{t+1} S_{t+1} + k_t^T v_t             y_t = q_t S_t       a_{T+1} = 1
//
//   result     y    direction   q    k    v    state in -> out      its decay is along
//   o          o    forward     q    k    v    S_0   -> S_T         rows (K)
//   dq         dq   forward     do   v    k    S_0^T -> S_T^T       columns
//   dk         dk   reverse     v    do   q    dS_T^T               columns
//   dv         dv   reverse     k    q    do   dS_T  -> dS_0        rows
//
// The columns of v, y and the state are independent of each other, so a block owns some of them. Below, R = width of
// q and k (rows of the state), N = width of v and y (columns of the state).
//
// The gradient of the log-decay is what flows across a step. As a sum of such flows it keeps its precision over
// any length. The cumulative sum of q.dq - k.dk would be the same number, but would lose digits.
//   flow    = x_t * (part of y_t that came from the state), x = q for dq (rho), x = k for dk (kappa)
//   dg_t    = rho_t + pi_t,  pi_t = X_t - kappa_t,  X_{t-1} = pi_t + rho_t,  X_T = <dS_T, S_T>
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/rows.h"

namespace horner::cuda {

enum class Decay { none, head, rows, columns };

// norm = sum, level 2: o_t = num_t / max(den_t, eps), den_t = scale q_t z_t. z is the column of S for the value v = 1.
// The gradient is that of the numerator, with do' = do / den instead of do, and with one more value, which is 1:
//   forward   z    = sums of k                      y_t = num_t / den_t
//   dq        Delta_t = do'_t.o_t                   do'_t.v_s - Delta_t,  do'_t S^T - Delta_t z
//   dk        zeta = sums of Delta_s q_s            do'_s.v_t - Delta_s,  v_t Z^T - zeta
// The differences are small, so they are formed in fp32, before a product rounds them.
// With a floor (mLSTM) o_t = num_t / max(|den_t|, floor_t), and Delta_t has the sign of den_t.
struct Normaliser {
  const float* sums = nullptr;  // (chunks+2,B,heads,width): see Sums
  int heads = 0, width = 0;
  const float* shift = nullptr;  // Delta (B,H,T), T padded to whole chunks; null: forward
  const float* floor = nullptr;  // (B,H,T), padded in the same way; forward only
  float eps = 0;
  float* den = nullptr;  // (B,H,T), before the max with eps; null: not wanted
  Rows rest;             // the rounding error of o; null: not wanted
};

struct Sweep {
  int64_t B = 0, T = 0, H = 0;
  int R = 0, N = 0;
  bool reverse = false;
  Decay decay = Decay::none;
  double scale = 1;  // of y; a reverse sweep divides its first state by it and multiplies its last
  Type type = Type::f32;
  Rows q, k, v, y;
  bool wide_y = false;  // y in the accumulator's type: query heads will be summed later
  bool add_y = false;   // adds to y instead of writing it; level 2
  Rows g;               // accumulator's type: width 1 (head), R (rows) or N (columns)
  bool gains = false;   // level 2, norm = sum: after each g stands the log weight of its key
  Rows x;               // like v; read where flow is wanted
  Rows flow;            // (B,T,H,N) accumulator's type; data == nullptr: not wanted
  StateView first, last;
  // Level 2 cuts a long time into parts. Each part first runs from zero, then from the state that enters it.
  int parts = 1;
  StateView entering;       // (parts,B,heads,R,N): the state that enters each part but the first
  float* decays = nullptr;  // (parts,B,H): log2 of the decay of each part
  Normaliser norm;
};

// Level 1: token by token, any R <= 256 (fp64: 128), N, T >= 1.
cudaError_t recurrent_sweep(const Sweep&, cudaStream_t);

// One token, forward, at the speed of memory. steps(): whether `step` can run this sweep.
bool steps(const Sweep&);
cudaError_t step(const Sweep&, cudaStream_t);

// dg from rho and kappa (B,T,C), g (B,T,C), X (B,C) or null, in the accumulator's type; carried: whether
// a state came in. Level 1.
struct GateGradient {
  int64_t B = 0, T = 0, C = 0;
  const void *rho = nullptr, *kappa = nullptr, *g = nullptr, *X = nullptr;
  void* dg = nullptr;
  bool carried = false;
  Type type = Type::f32;  // f64 or f32
};
cudaError_t recurrent_gate(const GateGradient&, cudaStream_t);

// Level 2: chunks of 64 tokens on the tensor cores of sm_90a, bf16, R <= 128, decay none or per head. In the sweeps of dq
// and dk, R is the width of v. So a v wider than 128 takes a Gradient for each 128 values, and the results are added.
// Inside a chunk, G_t = g_1 + .. + g_t and M_ts = exp(G_t - G_s):
//   y_t  = e^{G_t} q_t S + sum_{s<=t} M_ts (q_t.k_s) v_s      S' = e^{G_C} S + sum_s e^{G_C-G_s} k_s^T v_s
//   in reverse e^{G_C-G_t}, s >= t, M_st                      and e^{G_s}
// Crossing: what the sweeps leave for the gradient of g, for each of n blocks of 64 columns, in fp32.
struct Crossing {
  // (n,B,H,T): x_t . (part of y_t from the state): rho or kappa
  float* flow = nullptr;
  // (n,B,H,T), only dq: sum_{t>i} E_ti - sum_{s<i} E_is, E_ts = x_t.v_s P_ts
  float* inner = nullptr;
  // (n,B,H,T), only dk: x_t.y_t, the gradient of the log weight; null: not wanted
  float* whole = nullptr;
  // (B,H,anchors,n,R,64): the state that enters every kAnchor-th chunk and the last one, in the sweep's direction
  float* state = nullptr;
};
constexpr int kAnchor = 8;
// A normaliser's gradient is a small difference of large sums, so states are stored twice as often.
constexpr int kSumAnchor = 4;

cudaError_t chunked_forward(const Sweep&, cudaStream_t);
// The states that enter the parts: fills `entering` and `decays`. Needs neither y nor q.
cudaError_t chunked_entering(const Sweep&, cudaStream_t);
// The three sweeps of the gradient, in one launch. With a decay it fills rho and kappa.
struct Gradient {
  Sweep dq, dk, dv;
  Crossing rho, kappa;  // of dq, of dk
};
cudaError_t chunked_backward(const Gradient&, cudaStream_t);

// The sums of f_s x_s over the tokens before each chunk, in the direction of the sweep, with the decay of its state. Slot 0
// is an input; slot 1 + i is what enters the i-th chunk; the last slot is what leaves the last chunk. Columns from K on are 0.
struct Sums {
  int64_t B = 0, T = 0, heads = 0;
  int K = 0, width = 0;  // a multiple of 64
  bool reverse = false;
  Rows x, g;                      // g.data == nullptr: no decay
  const float* factor = nullptr;  // f (B,heads,T), T padded to whole chunks; null: 1
  float* sums = nullptr;          // (chunks+2,B,heads,width)
  float* decays = nullptr;        // (chunks+2,B,heads) scratch, with a decay
};
cudaError_t chunk_sums(const Sums&, cudaStream_t);

// do' = do / max(den, eps), and Delta for each 128 values. Where den is below the floor the divisor is a constant: Delta = 0.
struct DividedGradient {
  int64_t B = 0, T = 0, H = 0;
  int V = 0;
  float eps = 0;
  Rows out, o, rest, divided;    // do; o and its rounding error; do'
  const float* den = nullptr;    // (B,H,T)
  const float* floor = nullptr;  // (B,H,T), T padded to whole chunks; null: eps
  float* shift = nullptr;        // (blocks,B,H,T), padded in the same way: Delta
};
cudaError_t divide_gradient(const DividedGradient&, cudaStream_t);

// dg (B,T,groups) from the crossings of dq and dk, summed over the query heads of each group.
struct ChunkedGate {
  int64_t B = 0, T = 0, H = 0;
  int group = 1, blocks = 0, rows = 0;  // one or two blocks of 64 columns; padded rows of the state
  float scale = 1;
  bool carried = false;  // a state came in
  Crossing rho, kappa;
  Rows g;                    // fp32
  Normaliser z, zeta;        // of dq and of dk
  int64_t anchors = 0;       // (chunks - 1) / each + 1
  int each = kAnchor;        // chunks between two anchors
  float* product = nullptr;  // (B,H,anchors) scratch: <Z, S>
  float* dg = nullptr;       // (B,T,H/group)
};
cudaError_t chunked_gate(const ChunkedGate&, cudaStream_t);

// In place: the end state of each part from zero becomes the state that enters the part. ends (parts,size); decays
// (parts,size / each), log2, or null: no decay. The end state of the last part is not read.
cudaError_t join_parts(
    float* ends, const float* decays, int parts, int64_t size, int64_t each, cudaStream_t
);

// Level 2 with a decay per key: see per_key.cuh. bf16, K and V multiples of 8 up to 128.
inline int padded_keys(int K) { return (K + 31) / 32 * 32; }
inline int padded_values(int V) { return V <= 64 ? 64 : 128; }

// The state that enters each chunk, in the direction of the sweep.
struct KeyStates {
  Sequences sequences;
  int64_t H = 0;
  int K = 0, V = 0;
  bool reverse = false;
  double scale = 1;
  Rows x, y, g;  // k, v forward; q, do in reverse
  bool narrow_g = false;
  StateView first, last;
  void* states = nullptr;  // (slots,H,padded_keys,padded_values) bf16
  // Parts of a long time: each part first runs from zero, then from the state that enters it.
  int parts = 1;
  float* ends =
      nullptr;  // (parts,count,H,padded_keys,padded_values): end states, then entering ones
  float* decays = nullptr;  // (parts,count,H,padded_keys); null: `ends` has the entering states
};
cudaError_t key_states(const KeyStates&, cudaStream_t);
int key_state_parts(const KeyStates&);  // how many parts suit the shape; 1 for a packed batch

struct PerKey {
  Sequences sequences;
  int64_t H = 0;
  int64_t states = 0;  // H / group
  int group = 1, K = 0, V = 0;
  float scale = 1;
  Rows q, k, v, g, out;     // out: o, or do in the gradient
  bool narrow_g = false;    // bf16
  const void* S = nullptr;  // (slots,H/group,..)
  const void* Z = nullptr;  // (slots,H,..)
  Rows dq, dk, dv, dg;
  bool wide = false;       // dk and dv in fp32: query heads will be summed later
  bool narrow_dg = false;  // bf16
};
cudaError_t key_output(const PerKey&, cudaStream_t);
cudaError_t key_gradient(const PerKey&, cudaStream_t);

}  // namespace horner::cuda
