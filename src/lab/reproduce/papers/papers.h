// Settings that the papers' experiments share. Only the mixer differs between the arms of a claim.
#pragma once

#include "lab/reproduce/reproduce.h"

namespace horner {

inline const std::vector<double> kRates = {0.4, 1};  // learning rates to try, relative to the arm's

// Multi-query recall of `pairs` pairs in T tokens: a causal convolution, then the mixer.
TrainOptions recall(Effort scale, const std::string& mixer, int64_t T = 128, int64_t pairs = 24);
// Language modelling on the bytes of the text that this machine has; `steps` on a CPU.
TrainOptions language(Effort scale, const std::vector<std::string>& pattern, int64_t steps = 600);
// A classifier of whole sequences, mean over tokens.
TrainOptions classify(Effort scale, const std::string& task, const std::string& mixer);
// A task of exact answers at every position, one layer, longer in the test than in training.
TrainOptions track(Effort scale, const std::string& task, const std::string& mixer, int64_t longer);

Paper taylor_paper();
Paper dsf_paper();
Paper inline_paper();
Paper metala_paper();
Paper luna_paper();
Paper swax_paper();
Paper selective_rope_paper();
Paper two_mamba_paper();
Paper measure_paper();

}  // namespace horner
