// One mixer from inside: its parameters, its state compared with a key/value cache, how it forgets, what it reads.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "lab/reproduce/confusion.h"
#include "model/model.h"

namespace horner {

struct ExplainOptions {
  int64_t D = 64;
  int64_t T = 0;
  int64_t seed = 0;
  std::string checkpoint;
  int64_t layer = 0;
  std::string text;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("D", D, "model dim");
    visit("T", T, "tokens that it is looked at with; 0: 64, with --model 512");
    visit("seed", seed, "seed of weights and input");
    visit(
        "checkpoint", checkpoint, "run or model folder: a trained layer instead of a fresh mixer"
    );
    visit("layer", layer, "which layer of the checkpoint, from 0");
    visit("text", text, "file that is read; empty: random tokens, with --model Shakespeare");
  }
};

struct Explanation {
  struct Size {
    int64_t T, bytes, cache;  // state and key/value cache of one sequence, fp32
  };
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
  };
  struct Matrix {  // of the dynamical-systems form, first head: one row a token
    std::string name;
    int64_t rows, columns;  // at most 64 columns are kept
    std::vector<double> values;
  };

  std::string mixer, equation, paper;
  Json settings;
  std::vector<std::string> voids;
  std::vector<Parameter> parameters;
  int64_t parameter_count = 0;
  std::vector<Size> sizes;
  int64_t crossover = 0;  // the first T at which the state is smaller than the cache; 0: never

  std::string op;                  // the recurrence inside
  int64_t F = 0;                   // numbers of state per value channel
  std::vector<double> transition;  // quantiles 0, 1/4, 1/2, 3/4, 1 of Lambda's eigenvalues
  std::vector<double> spectrum;    // quantiles 0, 1/64, .., 1
  double growing = 0;              // share of them above 1
  double half_life = 0;          // tokens, of the median eigenvalue; infinite if that is 1 or more
  std::vector<Matrix> matrices;  // Lambda, B, C
  std::string consequence;       // what the range of eigenvalues means
  std::vector<double> orders;    // share of mean |x^n/n!|, n = 0..99, if scores are exponentiated
  double row_sum_low = 0, row_sum_high = 0, negative_mass = 0;  // of the map's rows
  std::vector<double> map;  // (T,T) of the first head, for pictures
  int64_t T = 0;
  Confusion confusion;

  Json json() const;
};

// A mixer as in taylor:order=4,norm=l2; empty with a checkpoint, which names its mixer.
Explanation explain(const std::string& mixer, const ExplainOptions&);

Explanation explain_mixer(Mixer& mixer, const MixerType& type, const at::Tensor& x);  // x (1,T,D)
Explanation explain_checkpoint(const ExplainOptions&);
// The mixer of a layer while the model of a run or model folder reads an input of one sequence.
Explanation explain_layer(const std::string& folder, int64_t layer, const at::Tensor& input);

// The map of the first head of a layer's mixer while the model reads an input.   (T,T), row-major
std::vector<double> map_of_layer(Model& model, int64_t layer, const at::Tensor& input);

// ln 2 / -ln(eigenvalue), in tokens: 0 for one at or below 0, infinite for one at or above 1.
double half_life(double eigenvalue);

}  // namespace horner
