// Checkpoints: a model in the Hugging Face layout, and what training needs to continue.
//
//   step_00001000/  model.safetensors  config.json  optimizer.safetensors  trainer.json  DONE
//                   and for text the tokenizer's files: tokenizer.json, or what it was read from
//
// A checkpoint is written as step_00001000.tmp, renamed, then marked DONE. A folder without DONE is not a checkpoint, so the
// program may be stopped at any moment.
#pragma once

#include "io/tokenizer.h"
#include "tasks/task.h"
#include "train/optimizer.h"

namespace horner {

// What a run remembers besides its weights.
struct TrainerState {
  int64_t step = 0;       // steps done
  int64_t tokens = 0;     // tokens read
  int64_t lines = 0;      // lines of metrics.jsonl
  double seconds = 0;     // of training
  double least_loss = 0;  // smallest loss so far; 0: none yet
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

// Writes a new checkpoint into `folder` and keeps the `keep` newest. If it cannot be written: RunError, and the old ones stay.
void save_checkpoint(
    const std::string& folder,
    Model& model,
    Optimizer& optimizer,
    const TrainerState& state,
    const std::string& task_name,
    const Task& task,
    int64_t keep
);
// The newest complete checkpoint, or nothing. Deletes what an interruption left behind.
std::string newest_checkpoint(const std::string& folder);
TrainerState load_checkpoint(const std::string& checkpoint, Model& model, Optimizer& optimizer);

// The model of a checkpoint, of a run folder (its newest), or of any folder with Horner's
// config.json and model.safetensors; ready to be evaluated. DataError if there is none.
std::shared_ptr<Model> load_model(const std::string& folder);
// The tokenizer in the model's folder; bytes if there is none.
Tokenizer load_tokenizer_of(const std::string& folder);

// Copies the weights of such a folder into `model`, wherever name and shape agree. DataError if there is no such folder.
void begin_with(Model& model, const std::string& folder);

}  // namespace horner
