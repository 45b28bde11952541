// Vectors of whole texts from an encoder: the mean of its outputs over the tokens of a text, of length 1.
//
//   v = m / |m|,   m = mean over t < length of x_t          (arXiv:1908.10084)
#pragma once

#include "model/model.h"

namespace horner {

// tokens (B,T) with padding from lengths (B) on; undefined: no padding.   -> (B,D), fp32
at::Tensor sentence_vectors(Model& model, const at::Tensor& tokens, const at::Tensor& lengths);

}  // namespace horner
