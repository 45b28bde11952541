// SWAX's window of a training step (arXiv:2509.24552): one draw per batch, for every window mixer
// of the model.
//
//   w(step) = long                                  in the last `anneal` of the steps
//           = short with probability p, else long   before
//
// The draw depends only on seed and step, so it is the same on every rank and after a resume.
#pragma once

#include <cstdint>

namespace horner {

struct StochasticWindow {
  int64_t short_window = 128;
  int64_t long_window = 2048;
  double probability = 0.5;
  double anneal = 0.1;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("short_window", short_window, "window with probability p");
    visit("long_window", long_window, "window otherwise, at the end of training and after it");
    visit("probability", probability, "p");
    visit("anneal", anneal, "share of the steps at the end that take the long window");
  }

  int64_t at(int64_t step, int64_t steps, uint64_t seed) const;
};

}  // namespace horner
