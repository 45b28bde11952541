// What a token needs beside products, on one thread of a CPU: norms, SwiGLU, and attention over pages of keys and values.
#pragma once

#include <span>

#include "engine/cpu/pages.h"
#include "nn/cpu/targets.h"

namespace horner {

// y = x / sqrt(mean x^2 + eps) * weight
void rms_norm_row(
    const float* x, const float* weight, double eps, int64_t n, float* y, Target = best_target()
);
// y = SiLU(gate) * up
void swiglu_row(const float* gate, const float* up, int64_t n, float* y, Target = best_target());
void to_halves(const float* x, int64_t n, uint16_t* y, Target = best_target());  // n in 16s

// Queries of one key/value head over keys [begin, end) of a stream, or of a window's slots; begin is a multiple of kPage. Query i sees keys s < ends[i]
// with s >= begins[i] or s < sinks.
//
//   m_i = max_s x_is     l_i = sum_s e^{x_is - m_i}     o_i = sum_s e^{x_is - m_i} v_s     x_is = q_i.k_s
//
// Each key and value is read once for up to 8 queries. A query that sees no key has m = -inf and l = o = 0.
struct Attend {
  int64_t K = 0, V = 0;  // V padded to a multiple of 16
  const float* q;        // (queries,K), scaled
  std::span<const int64_t> begins, ends;
  int64_t sinks = 0;
  std::span<const std::shared_ptr<std::byte>> pages;
  const std::byte* first_page = nullptr;  // not null: pages that lie side by side, instead
  int64_t page_bytes = 0;                 // of these
  bool wide = false;                      // pages hold fp32, else halves
  int64_t keys, values;                   // where this layer and head begin in a page
  int64_t begin, end;
  float *m, *l, *o;  // (queries), (queries), (queries,V)
};
void attend(const Attend& task, Target = best_target());

}  // namespace horner
