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
// where dS is the gradient of the final state, decayed to here: W may be 0, so that it cannot join Z.
//
// The gradient of the log-decay is what flows across a step (see linear.cuh): rho_t = m(q_t).dm(q_t),
// kappa_s = m(k_s).dm(k_s), and E_ts = w_ts dw_ts inside a chunk.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace horner::cuda {

// A tensor (B,T,heads,width), last dimension contiguous, strides in elements; query head h reads head h / group.
struct PowerRows {
  void* data = nullptr;
  int64_t b = 0, t = 0, h = 0;
  int group = 1;
};

constexpr int kPowerChunk = 128, kPowerThreads = 256;

// Level 2: chunks of 128 tokens on tensor cores, bf16, order <= 2, K <= 32, states fp32 in registers.
// A block owns kColumns columns of v and of the state of one head, over one segment of time.
struct PowerSweep {
  int64_t B = 0, T = 0, H = 0;
  int K = 0, V = 0, order = 2;
  int blocks = 1;                  // of columns
  int segments = 1, length = 0;    // of time, in chunks each
  float c0 = 0, c1 = 0, c2 = 0;    // scale included: p(q.k)
  bool normalise = false, decays = false, clamps = false;
  float eps = 0;
  PowerRows q, k, v, g;            // g fp32
  PowerRows o;                     // forward, bf16
  PowerRows dO, dq, dk, dv;        // bf16, or fp32 where blocks or query heads are still to be summed
  int64_t dq_block = 0, dk_block = 0;  // elements between the sums of two blocks
  bool wide_dq = false, wide_dk = false, wide_dv = false;
  float* den = nullptr;            // (B,H,T); written by the sweep of dq, read by that of dk and dv
  float* delta = nullptr;          // (blocks,B,H,T)
  float *rho = nullptr, *kappa = nullptr, *early = nullptr, *late = nullptr;  // (blocks,B,H,T), with a decay
  // (B,H,blocks,segments,registers,threads): the state after each segment on its own, then entering the next
  float *S = nullptr, *Z = nullptr;
  float* passed = nullptr;         // (B,H,segments): log2 of the decay of a segment
  const float *first = nullptr, *last_grad = nullptr;  // (B,H/group,F,V~), contiguous; null: zero
  float *last = nullptr, *first_grad = nullptr;        // of B,G heads, of B,H heads; null: not wanted
  float* first_grad_ones = nullptr;                    // (blocks,B,H,F): the column of ones of first_grad
  int state_group = 1;
};

int power_columns(int K);    // columns of v that a block owns
int power_registers(int K);  // of the state, per thread
cudaError_t power_forward(const PowerSweep&, cudaStream_t);
cudaError_t power_backward(const PowerSweep&, cudaStream_t);
// dg (B,T,H/group) from rho, kappa, early, late, S and Z.
cudaError_t power_gate(const PowerSweep&, float* dg, cudaStream_t);

}  // namespace horner::cuda
