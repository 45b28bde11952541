// Cross entropy of a head whose logits are never held whole.
//
//   l_i = x_i W^T + b, capped: c tanh(. / c)                                      (n,V)
//   loss = sum over i of  log sum_v e^{l_iv} - l_i[target_i]
//   dl_iv = softmax(l_i)_v - [v = target_i],  times 1 - (l_iv / c)^2 if capped
//   dx_i = dl_i W      dW = sum over i of dl_i^T x_i      db = sum over i of dl_i
//
// The forward goes through the tokens in pieces. A piece's logits are one product; one kernel replaces them by their
// gradient; two products read it. dW and db are summed in fp32. The backward multiplies by the loss's gradient.
//
// The KL of a second model's distribution q to this one's p goes the same way:
//
//   kl = sum over i, v of  q_iv (log q_iv - log p_iv)        dl_iv = p_iv - q_iv,  capped as above
//
//   bytes per logit in bf16     plain operations   here
//   passes over memory          42                 8, of which 4 in the products
//   held at once                12                 2, of one piece
#pragma once

#include <ATen/core/Tensor.h>

namespace horner {

struct Head {
  at::Tensor weight, bias;  // (V,D), (V) or undefined
  double cap = 0;           // of the logits; 0: none
};

constexpr int64_t kPieceLogits = int64_t(1) << 27;    // of a piece, unless 128 tokens have more
constexpr int64_t kKlPieceLogits = int64_t(1) << 25;  // of head_kl, which holds 16 bytes of each

// x (n,D), targets (n) in [0,V), negative: the token has no target. Computes in autocast's type where it is on.
at::Tensor head_loss(
    const at::Tensor& x,
    const Head& head,
    const at::Tensor& targets,
    int64_t piece_logits = kPieceLogits
);
// x_wanted (n,D') is what the second head reads. No gradient reaches it or its head. Plain operations on every device.
at::Tensor head_kl(
    const at::Tensor& x,
    const Head& head,
    const at::Tensor& x_wanted,
    const Head& wanted,
    int64_t piece_logits = kKlPieceLogits
);
bool has_head_loss(const at::Tensor& x);  // whether there is a kernel for x's device

// l (m,V), rows of whole units of 8 numbers: replaced by its gradient if `gradient` is set, else lost. each (m): the loss.
using LossStep =
    void (*)(at::Tensor& l, const at::Tensor& targets, double cap, bool gradient, at::Tensor& each);
LossStep& loss_step();      // of a GPU
LossStep cuda_loss_step();  // in libhorner_cuda.so
void plain_loss_step(
    at::Tensor& l, const at::Tensor& targets, double cap, bool gradient, at::Tensor& each
);

}  // namespace horner
