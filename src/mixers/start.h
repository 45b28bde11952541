// The closed-form start of a mixer that takes the place of trained softmax attention: no gradient, no training.
//
//   const HeadStatistics s = measure(teacher, x, 64, 4);     x (B,T,D): what the layer reads in the trained model
//   .. copy q, k, v, out (and their biases and norms) by name into the student ..
//   student.start(s);                                        does nothing where a mixer has no such start
//   student.calibrate(x);                                    the two lines in one, from the student's own q, k and v
//
//   mixer            what is set                to what
//   centres          centres                    k-means of the keys as attention reads them, so of rotated keys
//   hybrid:far=
//     centres        centres, far_bias          likewise; far_bias: the far tokens together weigh what softmax gives them
//     taylor         centre, far_bias           mean of the keys; likewise
//     linear         far_bias                   likewise
//     gla, kda,      mass               log weight of a far token, by weighted ridge regression on x: what softmax gives it
//     mlstm,         decay_bias         half-life = 1, 4 or 16 mean distances of attention
//     gated_deltanet beta_bias          delta rules: write strength 0.02, 0.1 or 0.4
//                    far_scale, _mean   least squares: what the window's share leaves of softmax's output
//
// What is tried there is fitted on every other piece of the text, and the pieces between decide, for each head (mass) or key head
// (gates). Gates of the recurrence do not depend on the token at first.
#pragma once

#include "ops/op.h"

namespace horner {

class Mixer;

// Softmax attention of one layer, measured on some text. Head h of H; a weight is that of token s for the query t.
struct HeadStatistics {
  at::Tensor x;  // (B,T,D): what the layer read
  Inputs
      in;  // q (B,T,H,K), k (B,T,G,K), v (B,T,G,V), as attention reads them: after biases, norms, rotation
  at::Tensor o;         // (B,T,H,V): what attention returned
  at::Tensor norm;      // (B,T,H): log of its normaliser
  at::Tensor distance;  // (H): mean of t - s under the weights
  at::Tensor entropy;   // (H): mean entropy of a query's weights, in nats
  at::Tensor
      far;  // (H): share of weight beyond the window and the sinks, of the queries that have such tokens
  int64_t window, sinks;  // of `far`
};

// Of a mixer whose op is attention over all past tokens (softmax). Needs O(T) memory.
HeadStatistics measure(Mixer& teacher, const at::Tensor& x, int64_t window, int64_t sinks);
// The same from what attention reads, x aside.
HeadStatistics measure(const Inputs& in, int64_t window, int64_t sinks);

// Lloyd's algorithm: `count` centres of points (N,K), the same for the same points.   (count,K)
at::Tensor k_means(const at::Tensor& points, int64_t count, int64_t rounds = 20);
at::Tensor k_means_of_heads(const at::Tensor& k, int64_t count);  // (B,T,G,K) -> (G,count,K)

}  // namespace horner
