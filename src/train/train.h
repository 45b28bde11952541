// One run: a model of any pattern of mixers, trained on any task, in one folder.
//
// Everything that decides the outcome is in TrainOptions. A run that was stopped at any moment and resumed gives the same
// numbers as one that never stopped.
#pragma once

#include <functional>
#include <map>

#include "model/model.h"
#include "model/stochastic_window.h"

namespace horner {

struct OptimOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1;
  double ema = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("lr", lr, "highest learning rate");
    visit("beta1", beta1, "AdamW's decay of the mean gradient");
    visit("beta2", beta2, "AdamW's decay of the mean square");
    visit("eps", eps, "AdamW's epsilon");
    visit("weight_decay", weight_decay, "decoupled, of matrices only");
    visit("clip", clip, "largest norm of the gradient; 0: none");
    visit("ema", ema, "decay of averaged weights, which are then evaluated; 0: none");
  }
};

struct ScheduleOptions {
  std::string kind = "cosine";
  int64_t steps = 1000;
  int64_t warmup = 0;
  double final_lr = 0;
  double decay = 0.2;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("kind", kind, "after the warm-up", {"constant", "linear", "cosine", "wsd"});
    visit("steps", steps, "optimiser steps of the run");
    visit("warmup", warmup, "steps of linear warm-up");
    visit("final_lr", final_lr, "learning rate at the end, as a share of the highest");
    visit("decay", decay, "wsd: share of the steps at the end in which it falls");
  }
};

struct LoopOptions {
  int64_t batch = 64;
  int64_t accumulation = 1;
  std::string precision = "auto";
  bool checkpoint_activations = false;
  double target = 0;
  std::string shard = "none";
  int64_t sequence_parallel = 1;
  bool stochastic_window = false;
  StochasticWindow window;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("batch", batch, "examples of a step, over all processes");
    visit("accumulation", accumulation, "parts that a step's batch is computed in");
    visit(
        "precision",
        precision,
        "auto: bf16 autocast on a GPU, fp32 on a CPU",
        {"auto", "fp32", "bf16"}
    );
    visit("checkpoint_activations", checkpoint_activations, "compute a block again in backward");
    visit("target", target, "stop once validation's metric is this good; 0: never");
    visit(
        "shard",
        shard,
        "what several processes share out: the optimiser's vectors, or weights and gradients too",
        {"none", "optimizer", "full"}
    );
    visit(
        "sequence_parallel",
        sequence_parallel,
        "processes that share out the tokens of each sequence, in equal parts"
    );
    visit("stochastic_window", stochastic_window, "draw the window of `window` mixers per batch");
    visit("window", window, "how it is drawn");
  }
};

struct EvalOptions {
  int64_t every = 200;
  int64_t examples = 1000;
  int64_t batch = 0;
  std::vector<int64_t> lengths;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("every", every, "steps between validations; 0: only at the end");
    visit("examples", examples, "of validation and test at most; 0: all");
    visit("batch", batch, "examples at a time; 0: as in training");
    visit("lengths", lengths, "tokens at which the trained model is tested as well");
  }
};

struct CheckpointOptions {
  int64_t every = 500;
  int64_t keep = 2;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("every", every, "steps between checkpoints; 0: only at the end");
    visit("keep", keep, "newest ones that are kept");
  }
};

struct LogOptions {
  int64_t every = 10;
  bool tensorboard = true;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("every", every, "steps between lines of metrics.jsonl");
    visit("tensorboard", tensorboard, "write event files too");
  }
};

struct TrainOptions {
  std::string task = "mqar";
  std::string name;
  std::string out = "runs";
  int64_t seed = 0;
  std::string device = "auto";
  std::string resume = "auto";
  std::vector<std::string> expect;
  std::string from;
  ModelOptions model;
  OptimOptions optim;
  ScheduleOptions schedule;
  LoopOptions train;
  EvalOptions eval;
  CheckpointOptions checkpoint;
  LogOptions log;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("task", task, "task or task:settings, as in mqar:T=128,pairs=24");
    visit("name", name, "of the run; empty: made from task, pattern and seed");
    visit("out", out, "folder of the runs");
    visit("seed", seed, "seed of the weights and of dropout");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit(
        "resume",
        resume,
        "auto: go on where the run is; never: refuse if it exists",
        {"auto", "never"}
    );
    visit("expect", expect, "what must come out, as in 'test/accuracy >= 0.99' (docs/train.md)");
    visit(
        "from",
        from,
        "MODEL whose weights of the same name and shape it begins with; without settings of the "
        "model "
        "its settings are taken too; empty: none"
    );
    visit("model", model, "the model; vocabulary, classes and features follow from the task");
    visit("optim", optim, "AdamW");
    visit("schedule", schedule, "the learning rate");
    visit("train", train, "the loop");
    visit("eval", eval, "validation and test");
    visit("checkpoint", checkpoint, "checkpoints");
    visit("log", log, "logs");
  }
};

// Scores of one evaluation: what a row of a table or of metrics.jsonl holds.
struct Scores {
  int64_t examples = 0;
  std::map<std::string, double> values;         // loss, accuracy, "num_kv_pairs/accuracy-64", ...
  std::vector<double> by_example;               // the task's metric, for a paired bootstrap
  std::vector<double> loss_by_position;         // means over buckets of positions
  double value(const std::string& name) const;  // NaN: there is none
  Json json() const;
  static Scores from(const Json& json);
};

struct TrainResult {
  std::string folder;
  TrainOptions options;  // as resolved
  std::string metric;    // the task's
  Scores valid, test;    // at the end; the test is read once
  std::map<int64_t, Scores> lengths;
  struct Point {
    int64_t step;
    double loss, valid;  // valid: NaN where not evaluated
  };
  std::vector<Point> curve;
  int64_t steps = 0, tokens = 0, parameters = 0;
  int64_t state_bytes = 0;  // of one sequence of the task's length
  double flops_per_token = 0, seconds = 0, tokens_per_second = 0, peak_bytes = 0;
  bool resumed = false, finished = false;
  std::string stopped;             // why it ended before its last step: "target", ...; else empty
  std::vector<std::string> notes;  // what was found missing or damaged
  Json json() const;
  static TrainResult from(const Json& json);
};

// What a progress line shows.
struct TrainTick {
  int64_t step, steps;
  double loss, valid, lr, gradient_norm, tokens_per_second, memory, elapsed, left;
  double data_wait;  // share of the time in which a step waited for its examples
  double mfu;        // share of the device's stated FLOP/s; NaN: not known
  std::string note;  // something to be said once; empty: nothing
};
using TrainTell = std::function<void(const TrainTick&)>;

// Runs to the end, from the newest checkpoint of the folder if there is one. A finished run is only read.
TrainResult train(const TrainOptions& options, const TrainTell& tell = {});

// The result of a finished run; DataError if there is none.
TrainResult read_result(const std::string& folder);

}  // namespace horner
