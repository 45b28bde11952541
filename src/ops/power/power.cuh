// Kernels of `power`. x_ts = scale q_t.k_s, p(x) = sum_n c_n x^n, M_ts = e^{G_t-G_s}, v~ = [v, 1]:
//
//   num~_t = sum_{s<=t} M_ts p(x_ts) v~_s = [num_t, den_t]      o = num / den (norm = sum) or num
//   Delta_t = do_t.o_t      do~_t = [do_t, -Delta_t] / den_t    or [do_t, 0]
//   dw_ts = do~_t.v~_s      dx = M p'(x) dw      dq = scale dx K      dk = scale dx^T Q      dv~ = w^T do~
//
// Chunked (order <= 2): m(x) = all monomials, W = c_n scale^n (multinomial), S entering a chunk of C tokens,
// Z the gradient of the state leaving it:
//   num~_t = e^{G_t} m(q_t) W S + inside                S' = e^{G_C} S + sum_s e^{G_C-G_s} m(k_s)^T v~_s
//   dm(q_t) = e^{G_t} do~_t (W S)^T                     dm(k_s) = e^{G_C-G_s} v~_s (W Z + dS)^T
//   dv_s   = e^{G_C-G_s} m(k_s) (W Z + dS) + inside     Z' = e^{G_C} Z + sum_t e^{G_t} m(q_t)^T do~_t
// where dS is the gradient of the final state times the decay since then. It is not multiplied by W, so it stays apart from Z.
//
// The gradient of the log-decay is what flows across a step (see linear.cuh): rho_t = m(q_t).dm(q_t),
// kappa_s = m(k_s).dm(k_s), and E_ts = w_ts dw_ts inside a chunk.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/rows.h"

namespace horner::cuda {

// Level 1: all pairs, token by token, any order up to 16, K, V <= 256, no states.
struct PowerDirect {
  int64_t B = 0, T = 0, H = 0;
  int K = 0, V = 0, order = 0, g_group = 1;
  double c[17] = {}, scale = 1, eps = 0;
  bool normalise = false, clamps = false;
  Type type = Type::f32;
  Rows q, k, v, dO;
  const double* G = nullptr;  // (B,T,H/g_group): sum of the log-decays up to t; null: none
  void* o = nullptr;          // (B,T,H,V)
  // Gradients, in the accumulator's type, per query head; dq == nullptr: forward.
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void *inverse = nullptr, *delta = nullptr;  // (B,T,H) scratch: 1 / den, Delta
  double* flow = nullptr;                     // (B,T,H): gradient of G_t
};
cudaError_t power_direct(const PowerDirect&, cudaStream_t);

constexpr int kPowerChunk = 128, kPowerThreads = 256;

// Level 2: chunks of 128 tokens on tensor cores, bf16, order <= 2, K <= 32, states fp32 in registers.
// A block owns kColumns columns of v and of the state of one head, over one segment of time.
struct PowerSweep {
  int64_t B = 0, T = 0, H = 0;
  int K = 0, V = 0, order = 2;
  int blocks = 1;                // blocks of columns
  int segments = 1, length = 0;  // segments of time; chunks of a segment
  float c0 = 0, c1 = 0, c2 = 0;  // of p(q.k), scale included
  bool normalise = false, decays = false, clamps = false;
  float eps = 0;
  Rows q, k, v, g;  // g fp32
  // bf16, and the rounding error of o. The forward writes both (o_rest only if wanted), the backward reads both.
  Rows o, o_rest;
  Rows dO, dq, dk, dv;                 // bf16; fp32 if blocks or query heads will be summed later
  int64_t dq_block = 0, dk_block = 0;  // elements between the sums of two blocks
  bool wide_dq = false, wide_dk = false, wide_dv = false;
  float* den = nullptr;  // (B,H,T): the forward writes it (null: not wanted), the backward reads it
  float* delta = nullptr;  // (B,H,T) scratch of the backward
  float *rho = nullptr, *kappa = nullptr, *early = nullptr,
        *late = nullptr;  // (blocks,B,H,T), with a decay
  // States in the layout of the registers, (B,H,blocks,segments,registers,threads). S and Z: first the state after each
  // segment from zero, then the state that enters the next segment. S_first, S_last, Z_last and dS have one segment.
  float *S = nullptr, *Z = nullptr, *S_first = nullptr, *S_last = nullptr, *Z_last = nullptr,
        *dS = nullptr;
  float* passed = nullptr;   // (B,H,segments): log2 of the decay of a segment
  float* dS_left = nullptr;  // (B,H): the decay from the first state to the end, which scales dS
  // States in the op's layout, contiguous: (B,H/group,F,V~); first_grad has all H heads. null: zero, or not wanted.
  const float *first = nullptr, *last_grad = nullptr;
  float *last = nullptr, *first_grad = nullptr;
  float* first_grad_ones = nullptr;  // (blocks,B,H,F): the column of ones of first_grad
  int state_group = 1;
};

int power_columns(int K);    // columns of v that a block owns
int power_registers(int K);  // registers of the state, per thread
cudaError_t power_forward(const PowerSweep&, cudaStream_t);
cudaError_t power_backward(const PowerSweep&, cudaStream_t);

// A gradient in bf16, rows of `width` numbers: the sum over blocks and groups of (blocks,rows,group,width).
struct PowerSum {
  const float* from = nullptr;
  void* to = nullptr;  // (rows,width)
  int64_t rows = 0;
  int width = 0, group = 1, blocks = 1;
};
cudaError_t power_sum(const PowerSum&, cudaStream_t);

// dg (B,T,H/group) from what power_backward left in p. Between two segments the flow is computed as <Z, S>.
struct PowerGate {
  const float* end = nullptr;  // (B,H/group): <dS_T, S_T>; null: 0
  const float* through =
      nullptr;               // (B,H/group), only T <= 128: flow from the first state to the last
  float* between = nullptr;  // (B,H,segments) scratch
  float* dg = nullptr;       // (B,T,H/group)
};
cudaError_t power_gate(const PowerSweep&, const PowerGate&, cudaStream_t);

// Level 3: all pairs on the tensor cores of sm_90a (wgmma), bf16, K, V <= 128, order <= 10, no states.
struct PowerParallel {
  int64_t B = 0, T = 0, H = 0;
  int64_t padded = 0;      // T, rounded up to a multiple of 64
  int64_t processors = 1;  // multiprocessors of the GPU
  int K = 0, V = 0, order = 2;
  float c[11] = {}, eps = 0;  // scale included
  bool normalise = false, clamps = false;
  Rows q, k, v, o,
      o_rest;           // bf16; o_rest: the rounding error of o, for Delta; null: not wanted
  Rows dO, dq, dk, dv;  // bf16; dk and dv fp32 (wide) if query heads will be summed later
  bool wide = false;
  // (B,H,padded): 1 / den; 1 without a normaliser; 0 after the end. Negative if den was below eps: then the divisor is the
  // constant eps. The forward writes it; null: not wanted.
  float* inverse = nullptr;
  float *factor = nullptr,
        *delta = nullptr;  // (B,H,padded) scratch of the backward: |inverse| and Delta
  // Log2 of the decay in two parts: since the start of a token's block of 64 (B,H/g_group,padded), and of everything before
  // that block (B,H/g_group,padded/64); null: no decay. So no difference of two long sums is taken in fp32. K, V <= 64.
  const float* since = nullptr;
  const double* before = nullptr;
  int g_group = 1;
  // (B,H,padded): sums of w dw over the past of a token, and over its future. dG is their difference.
  float *early = nullptr, *late = nullptr;
};
cudaError_t power_parallel_forward(const PowerParallel&, cudaStream_t);
cudaError_t power_parallel_backward(const PowerParallel&, cudaStream_t);

// One token, order <= 2, K <= 64, V <= 128, bf16 or fp32. The state (B,G,F,V~) is read once and written once.
struct PowerStep {
  int64_t B = 0;
  int H = 0, G = 0, K = 0, V = 0, order = 2, features = 0;
  float c0 = 0, c1 = 0, c2 = 0, eps = 0;  // scale included
  bool normalise = false, clamps = false, bf16 = true;
  bool overlaps = false;  // sm_90: may start before the previous kernel ends
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (B,1,heads,width), strides in elements
  int64_t q_b = 0, q_h = 0, k_b = 0, k_h = 0, v_b = 0, v_h = 0;
  const float* g = nullptr;      // (B,G); null: no decay
  const float* first = nullptr;  // null: zero
  float* last = nullptr;         // null: not wanted
  void* o = nullptr;             // (B,1,H,V)
};
cudaError_t power_step(const PowerStep&, cudaStream_t);

}  // namespace horner::cuda
