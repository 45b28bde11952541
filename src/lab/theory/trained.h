// The experiment of arXiv:2512.11784: one layer with separate Wq, Wk, Wv, Wo learns in-context regression by SGD.
//
//   tokens e_i = (x_i, y_i), query e = (x, 0), d = 5;  x ~ N(0, Sigma), Sigma_ij = 0.5^|i-j|, w ~ N(0, I/d)
//   y = x.w + noise, noise ~ N(0, 0.1), also in what the query should give
//   s_i = (e Wq).(e_i Wk) / sqrt(d+1);   softmax: a = softmax(s);   linear: a = s / L
//   prediction = sum_i a_i (e_i Wv) Wo;  loss = mean squared error, SGD with step 1e-3 on 128 fresh prompts
//
// All weights start uniform in +-1/sqrt(d+1). The authors' code draws Sigma's root twice for the prompt, not for the query; here both
// are N(0, Sigma). Softmax and linear start with the same weights and see the same prompts (theirs do not by default).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace horner::theory {

struct TrainedOptions {
  int64_t L = 100, steps = 1000;
  int64_t runs = 4;  // at once, each with its own weights and prompts
  uint64_t seed = 0;
  at::Device device = at::kCPU;
};

struct TrainedRisks {
  std::vector<double> softmax, linear, ridge;  // mean squared error on 4096 fresh prompts, by run
};
// InterruptedError after a signal or a time limit.
TrainedRisks train_and_test(const TrainedOptions& options);

}  // namespace horner::theory
