// The large-prompt limit of softmax attention, measured against its closed forms (arXiv:2512.11784).
//
//   part           measures                                                          against
//   identities     derivatives, the flow's gradient and end, d = 1                   closed forms, to rounding
//   concentration  error of output, bias and gradients at a fixed query              e C / L        (theory/limit.h)
//   random query   error of the output for z ~ N(0, I), logits growing               the constant, if it exists
//   regression     risk of in-context linear regression at a given (A, b)            closed forms   (theory/regression.h)
//   dynamics       gradient descent of softmax at length L                           the linear flow, measurements of others
//
// Each claim is a number with a 95 % interval and a band that the theory predicts:
//   holds           the interval lies in the band
//   does not hold   the interval lies outside
//   not shown       it straddles an edge: more repeats would decide
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "lab/theory/curve.h"

namespace horner::theory {

struct Options {
  int64_t seed = 0;
  int64_t d = 4;
  std::vector<int64_t> lengths = {64, 256, 1024, 4096, 16384};
  int64_t repeats = 2000;
  int64_t queries = 16;
  std::vector<int64_t> training = {16, 64, 256, 1024};
  int64_t runs = 6;
  double horizon = 8;
  std::string device = "auto";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("seed", seed, "seed of prompts, queries and covariances");
    visit("d", d, "dimension of a token");
    visit("lengths", lengths, "prompt lengths L, increasing");
    visit("repeats", repeats, "prompts per length at a fixed query; a quarter of them elsewhere");
    visit("queries", queries, "random queries per prompt");
    visit(
        "training", training, "prompt lengths of the training runs, increasing; empty: no training"
    );
    visit("runs", runs, "training runs per length");
    visit("horizon", horizon, "time up to which the gradient flow is followed");
    visit("device", device, "auto, cpu, cuda or cuda:N");
  }
};

struct Claim {
  std::string part, statement;
  Interval measured;
  double least, most;        // the band
  bool independent = false;  // not a claim of the paper, but of an independent check
  std::string verdict() const;
  std::string sentence() const;
};

// Gradient descent at one prompt length; time is steps times the step size.
struct Trajectory {
  std::string covariance;
  int64_t L;  // 0: the limit
  std::vector<double> time, risk,
      deviation;  // R_inf of the parameters; |theta_L - theta_inf|, mean of the runs
};

struct Report {
  Options options;
  std::string device;
  double seconds = 0;
  std::vector<Curve> curves;
  std::vector<Trajectory> trajectories;
  std::vector<Claim> claims;
  size_t refuted() const;  // claims that do not hold
  size_t broken() const;   // claims with a closed form that do not hold (not those about training)
  const Curve& curve(std::string_view part, std::string_view name, std::string_view quantity) const;
  Json json() const;
};

// `tell(done, total, part, what)` before each piece of work.
using Tell = std::function<void(size_t, size_t, const std::string&, const std::string&)>;
Report study(const Options&, const Tell& tell);

}  // namespace horner::theory
