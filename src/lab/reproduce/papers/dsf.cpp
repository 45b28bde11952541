#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

std::vector<Arm> state(Effort scale) {
  std::vector<Arm> arms = {{"softmax", recall(scale, "softmax:heads=1,position.kind=none")}};
  for (const int K : {2, 4, 16}) {
    arms.push_back(
        {fmt::format("norm attention K={}", K),
         recall(scale, fmt::format("norm_attention:heads=1,key={}", K))}
    );
  }
  return arms;
}

// 16 D numbers of state for 24 pairs: with 64 D both SSD and norm attention recall all of them.
std::vector<Arm> families(Effort scale) {
  const int heads = scale == Effort::gpu ? 8 : 4;  // of K = V = 16
  return {
      {"softmax", recall(scale, "softmax:heads=1,position.kind=none")},
      {"SSD", recall(scale, "mamba2:state=16,head=64,expand=1")},
      {"norm attention", recall(scale, "norm_attention:heads=1,key=16")},
      {"linear attention", recall(scale, fmt::format("linear:heads={}", heads))}};
}

// Small, because S6 has one scan for each channel and number of the state.
std::vector<Arm> scans(Effort scale) {
  return {
      {"SSD", recall(scale, "mamba2:state=16,head=64,expand=1", 64, 8)},
      {"S6", recall(scale, "s6:state=16,expand=1,block=bare", 64, 8)},
      {"norm attention", recall(scale, "norm_attention:heads=1,key=16", 64, 8)}};
}

std::vector<Arm> normalisers(Effort scale) {
  return {
      {"exp", recall(scale, "norm_attention:heads=1,key=64")},
      {"softplus", recall(scale, "norm_attention:heads=1,key=64,normaliser=softplus")},
      {"sigmoid", recall(scale, "norm_attention:heads=1,key=64,normaliser=sigmoid")}};
}

std::vector<Arm> transitions(Effort scale) {
  return {
      {"qLSTM", recall(scale, "qlstm:transition=plain", 64, 4)},
      {"reversed sigmoid", recall(scale, "qlstm:transition=reversed", 64, 4)}};
}

}  // namespace

Paper dsf_paper() {
  using E = Expectation;
  return {
      "dsf",
      "2405.15731",
      "Understanding the differences in foundation models: attention, SSMs and RNNs in one form",
      {
          {"state",
           "Softmax recalls perfectly; attention with a finite state approaches it as the state "
           "grows",
           "MQAR, a causal convolution before the mixer",
           "test/accuracy",
           {{E::reaches, "softmax", "", 0.95},
            {E::above, "norm attention K=4", "norm attention K=2"},
            {E::above, "norm attention K=16", "norm attention K=4"}},
           3,
           state,
           nullptr,
           kRates},
          {"families",
           "At an equal state softmax is above SSD, SSD above normalised attention, and that above "
           "linear attention",
           "MQAR, 16 numbers of state per channel",
           "test/accuracy",
           {{E::above, "softmax", "SSD"},
            {E::above, "SSD", "norm attention"},
            {E::above, "norm attention", "linear attention"}},
           3,
           families,
           nullptr,
           kRates},
          {"scans",
           "At an equal state SSD is above S6, and S6 about as good as normalised attention",
           "MQAR T=64, 8 pairs, 16 numbers of state per channel",
           "test/accuracy",
           {{E::above, "SSD", "S6"}, {E::near, "S6", "norm attention", 0.1}},
           3,
           scans,
           nullptr,
           kRates},
          {"normalisers",
           "The exponential, softplus and sigmoid normalisers do about equally well",
           "MQAR, norm attention, K = 64",
           "test/accuracy",
           {{E::near, "softplus", "exp", 0.1}, {E::near, "sigmoid", "exp", 0.1}},
           3,
           normalisers,
           nullptr,
           kRates},
          {"transition",
           "The transition of S6 (a reversed sigmoid) makes the plain gated RNN recall better",
           "MQAR T=64, 4 pairs",
           "test/accuracy",
           {{E::above, "reversed sigmoid", "qLSTM"}},
           3,
           transitions,
           nullptr,
           kRates},
      }};
}

}  // namespace horner
