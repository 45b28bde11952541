// Kernels of `linear`. Forward and every gradient are one sweep over time, with other tensors in its roles:
//
//   forward   S_t = a_t S_{t-1} + k_t^T v_t                 y_t = q_t S_t
//   reverse   S_t = a_{t+1} S_{t+1} + k_t^T v_t             y_t = q_t S_t       S_{T+1} with no decay
//
//   result     y    direction   q    k    v    state in -> out      its decay is along
//   o          o    forward     q    k    v    S_0   -> S_T         rows (K)
//   dq         dq   forward     do   v    k    S_0^T -> S_T^T       columns
//   dk         dk   reverse     v    do   q    dS_T^T               columns
//   dv         dv   reverse     k    q    do   dS_T  -> dS_0        rows
//
// Only the columns of v, y and the state are independent: a block owns some of them. Below, R = width of
// q and k (rows of the state), N = width of v and y (its columns).
//
// The gradient of the log-decay is what flows across a step. Taken as a sum of such flows, it keeps its
// precision over any length; as the cumulative sum of q.dq - k.dk it would not.
//   flow    = x_t * (part of y_t that came from the state), x = q for dq (rho), x = k for dk (kappa)
//   dg_t    = rho_t + pi_t,  pi_t = X_t - kappa_t,  X_{t-1} = pi_t + rho_t,  X_T = <dS_T, S_T>
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/rows.h"

namespace horner::cuda {

enum class Decay { none, head, rows, columns };

// norm = sum, level 2: o_t = num_t / max(den_t, eps), den_t = scale q_t z_t, where z is the column that S gains for
// v = 1. Its gradient is that of the numerator, with do' = do / den in the place of do, and a value more, which is 1:
//   forward   z    = sums of k                      y_t = num_t / den_t
//   dq        Delta_t = do'_t.o_t                   do'_t.v_s - Delta_t,  do'_t S^T - Delta_t z
//   dk        zeta = sums of Delta_s q_s            do'_s.v_t - Delta_s,  v_t Z^T - zeta
// The differences are formed in fp32, before a product rounds them: what is left of them is small.
// With a floor (mLSTM) it is o_t = num_t / max(|den_t|, floor_t), and Delta_t has the sign of den_t.
struct Normaliser {
  const float* sums = nullptr;  // (chunks+2,B,heads,width): see Sums
  int heads = 0, width = 0;
  const float* shift = nullptr;  // Delta (B,H,T), T padded to whole chunks; null: forward
  const float* floor = nullptr;  // likewise; forward alone
  float eps = 0;
  float* den = nullptr;  // (B,H,T), before it is held at eps; null: not wanted
  Rows rest;             // what rounding leaves of o, likewise
};

struct Sweep {
  int64_t B = 0, T = 0, H = 0;
  int R = 0, N = 0;
  bool reverse = false;
  Decay decay = Decay::none;
  double scale = 1;  // of y; a reverse state enters divided by it and leaves multiplied
  Type type = Type::f32;
  Rows q, k, v, y;
  bool wide_y = false;  // y in the accumulator's type, where query heads are still to be summed
  bool add_y = false;   // to what is there; level 2
  Rows g;               // accumulator's type: width 1 (head), R (rows) or N (columns)
  bool gains = false;   // level 2, norm = sum: each g is followed by the log of what scales its key
  Rows x;               // like v; with flow
  Rows flow;            // (B,T,H,N) accumulator's type; data == nullptr: not wanted
  StateView first, last;
  // Level 2, a sweep over a long time in parts: each by itself, then from the state that enters it.
  int parts = 1;
  StateView entering;       // (parts,B,heads,R,N): of each but the first
  float* decays = nullptr;  // (parts,B,H): log2 of what each keeps
  Normaliser norm;
};

// Level 1: token by token, any R <= 256 (fp64: 128), N, T >= 1.
cudaError_t recurrent_sweep(const Sweep&, cudaStream_t);

// One token, forward: the state at the speed of memory. Whether it can, and it.
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

// Level 2: chunks of 64 tokens on the tensor cores of sm_90a, bf16, R <= 128, decay none or per head. More values than
// 128, which are rows of dq and dk, take a Gradient for each 128 of them, and add.
// Inside a chunk, G_t = g_1 + .. + g_t and M_ts = exp(G_t - G_s):
//   y_t  = e^{G_t} q_t S + sum_{s<=t} M_ts (q_t.k_s) v_s      S' = e^{G_C} S + sum_s e^{G_C-G_s} k_s^T v_s
//   in reverse e^{G_C-G_t}, s >= t, M_st                      and e^{G_s}
// What it leaves for the gradient of g, per block of 64 columns (n of them), fp32:
struct Crossing {
  // (n,B,H,T): x_t . (part of y_t from the state): rho or kappa
  float* flow = nullptr;
  // (n,B,H,T), dq alone: sum_{t>i} E_ti - sum_{s<i} E_is, E_ts = x_t.v_s P_ts
  float* inner = nullptr;
  // (n,B,H,T), dk alone: x_t.y_t, the gradient of the gain; null: not wanted
  float* whole = nullptr;
  // (B,H,anchors,n,R,64): the state that enters, in the sweep's direction, every kAnchor-th (kSumAnchor-th) chunk and
  // the last
  float* state = nullptr;
};
constexpr int kAnchor = 8;
constexpr int kSumAnchor =
    4;  // with a normaliser, where what flows is small beside what it is the difference of

cudaError_t chunked_forward(const Sweep&, cudaStream_t);
// The states that enter the parts: entering and decays are filled. y and its operand q are not wanted.
cudaError_t chunked_entering(const Sweep&, cudaStream_t);
// The three sweeps of the gradient, in one launch. Crossings are filled where there is a decay.
struct Gradient {
  Sweep dq, dk, dv;
  Crossing rho, kappa;  // of dq, of dk
};
cudaError_t chunked_backward(const Gradient&, cudaStream_t);

// The sums of f_s x_s over the tokens before each chunk, in the direction of the sweep, and decayed as its state. Slot 0
// is given; slot 1 + i is what enters the i-th chunk, and the last slot what leaves them all. Columns from K on are 0.
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

// do' = do / max(den, eps), and Delta for each 128 values: 0 where the floor holds den, which is so a constant.
struct DividedGradient {
  int64_t B = 0, T = 0, H = 0;
  int V = 0;
  float eps = 0;
  Rows out, o, rest, divided;    // do; o and what rounding left of it; do'
  const float* den = nullptr;    // (B,H,T)
  const float* floor = nullptr;  // (B,H,T), T padded to whole chunks; null: eps
  float* shift = nullptr;        // (blocks,B,H,T), likewise
};
cudaError_t divide_gradient(const DividedGradient&, cudaStream_t);

// dg (B,T,groups) from the crossings of dq and dk; the group's query heads are summed.
struct ChunkedGate {
  int64_t B = 0, T = 0, H = 0;
  int group = 1, blocks = 0, rows = 0;  // one or two blocks of 64 columns; padded rows of the state
  float scale = 1;
  bool carried = false;  // a state came in
  Crossing rho, kappa;
  Rows g;                    // fp32
  Normaliser z, zeta;        // of dq and of dk
  int64_t anchors = 0;       // (chunks - 1) / each + 1
  int each = kAnchor;        // chunks
  float* product = nullptr;  // (B,H,anchors) scratch: <Z, S>
  float* dg = nullptr;       // (B,T,H/group)
};
cudaError_t chunked_gate(const ChunkedGate&, cudaStream_t);

// Parts of the time for a sweep of `blocks` blocks, of which `room` run at once: as many as fill the room, none under
// 16 chunks. A function of the shape and the GPU; HORNER_BATCH_INVARIANT=1 makes it 1, whatever the shape.
int time_parts(int64_t blocks, int64_t room, int64_t chunks);
// Each part's state at its end becomes the one that enters it. ends (parts,size); decays (parts,size / each), log2, or
// null: none. The last part's own is not read.
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
  // A sweep over a long time in parts: each by itself, then from the state that enters it.
  int parts = 1;
  float* ends = nullptr;  // (parts,count,H,padded_keys,padded_values): of each, then what enters it
  float* decays = nullptr;  // (parts,count,H,padded_keys); null: ends has what enters already
};
cudaError_t key_states(const KeyStates&, cudaStream_t);
int key_state_parts(const KeyStates&);  // how many suit the shape, one for a packed batch

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
  bool wide = false;       // dk and dv in fp32, where query heads are still to be summed
  bool narrow_dg = false;  // bf16
};
cudaError_t key_output(const PerKey&, cudaStream_t);
cudaError_t key_gradient(const PerKey&, cudaStream_t);

}  // namespace horner::cuda
