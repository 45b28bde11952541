// Checkpoints: a model in the Hugging Face layout, and what training needs to go on.
//
//   step_00001000/  model.safetensors  config.json  optimizer.safetensors  trainer.json  DONE
//                   and of a text the tokenizer's files: tokenizer.json, or what it was read from
//
// Written beside (step_00001000.tmp), renamed, then marked DONE: what has no DONE is not a
// checkpoint, whenever the program was stopped.
#pragma once

#include "io/tokenizer.h"
#include "tasks/task.h"
#include "train/optimizer.h"

namespace horner {

// What a run remembers beside its weights.
struct TrainerState {
  int64_t step = 0;       // steps that were done
  int64_t tokens = 0;     // that were read
  int64_t lines = 0;      // of metrics.jsonl
  double seconds = 0;     // of training
  double least_loss = 0;  // so far; 0: none yet
  std::string stopped;    // why it ended early

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("step", step, "steps that were done");
    visit("tokens", tokens, "tokens that were read");
    visit("lines", lines, "lines of metrics.jsonl");
    visit("seconds", seconds, "seconds of training");
    visit("least_loss", least_loss, "smallest loss so far");
    visit("stopped", stopped, "why the run ended early");
  }
};

std::string checkpoint_name(int64_t step);  // step_00001000

// Puts a new checkpoint into `folder` and keeps the `keep` newest. RunError, with the old ones
// whole, where it cannot be written.
void save_checkpoint(
    const std::string& folder,
    Model& model,
    Optimizer& optimizer,
    const TrainerState& state,
    const std::string& task_name,
    const Task& task,
    int64_t keep
);
// The newest whole one, or nothing. Takes away what an interruption left behind.
std::string newest_checkpoint(const std::string& folder);
TrainerState load_checkpoint(const std::string& checkpoint, Model& model, Optimizer& optimizer);

// The model of a checkpoint, of a run folder (its newest), or of any folder with Horner's
// config.json and model.safetensors; ready to be evaluated. DataError where there is none.
std::shared_ptr<Model> load_model(const std::string& folder);
// The tokenizer that lies beside the model; bytes where none does.
Tokenizer load_tokenizer_of(const std::string& folder);

// Gives `model` the weights of such a folder that it has by the same name and shape. DataError where
// there is none.
void begin_with(Model& model, const std::string& folder);

}  // namespace horner
