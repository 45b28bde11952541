// What a conversion lost: measured on a text that it was not calibrated on, and bounded for each head.
#pragma once

#include "lab/convert/generated.h"
#include "lab/convert/plan.h"
#include "lab/score/score.h"

namespace horner {

// One head of a converted layer while both mixers read what the layer reads in the teacher.
struct HeadError {
  int64_t layer = 0, head = 0;
  double relative = 0;  // |o^ - o| / |o|, root mean squares over tokens
  double tail = 0;      // mean of tau: softmax's weight beyond the window
  // As shares of 2 M_t, what no output can exceed (lab/convert/bound.h): means over tokens.
  double error = 0;
  std::optional<double> bound;  // nothing if none is known for the mixer
  double vacuous = 0;           // share of tokens whose bound says no more than 2 M_t
  double B = 0;                 // largest |q| max |k - mu| / sqrt K
  double beyond = 0;            // largest error less its bound; above 0 by rounding alone
  Json json() const;
};

std::vector<HeadError> head_errors(
    Model& teacher, Model& student, const Kept& kept, const at::Tensor& input
);

struct StateSize {
  int64_t T = 0, student = 0, teacher = 0;  // bytes of one sequence, fp32
};

// The student after one step of a conversion: start, align or distil.
struct ConvertStep {
  std::string name;
  int64_t tokens = 0;  // trained on in this step
  double seconds = 0;
  Interval kl;  // to the teacher, on the test
  double perplexity = 0, change = 0,
         same_top = 0;  // change: of the perplexity, relative to the teacher's
  std::vector<std::pair<int64_t, double>> curve;  // tokens, loss of training
  static ConvertStep of(const std::string& name, const TextScore& score);
  Json json() const;
  static ConvertStep from(const Json& json);
};

struct Certificate {
  std::string teacher, to, keep;
  std::vector<int64_t> kept;  // layers that stay softmax
  int64_t layers = 0;
  std::vector<std::string> text;
  std::string test;  // what it is measured on
  int64_t calibration_tokens = 0, context = 0;
  std::vector<ConvertStep> steps;  // in their order
  int64_t seed = 0;
  std::string device, precision;                     // of training
  TextScore score;                                   // against the teacher
  std::optional<TextScore> window_only, state_only;  // the parts of the student alone
  std::optional<GeneratedMatch> generated;
  std::vector<NeedleRecall> needles;
  std::vector<HeadError> heads;
  std::vector<StateSize> states;
  std::optional<Planning> planning;
  double seconds = 0;

  int64_t training_tokens() const;
  double perplexity_change() const;  // relative to the teacher's
  Json json() const;
};

}  // namespace horner
