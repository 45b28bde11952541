// Checkpoints: a model in the Hugging Face layout, and what training needs to continue.
//
//   step_00001000/  model.safetensors  config.json  optimizer.safetensors  trainer.json  DONE
//                   and for text the tokenizer's files: tokenizer.json, or what it was read from
//
// Processes that share the optimiser out write a file each instead of optimizer.safetensors (train/optimizer_file.h). The model
// is one file in any case.
//
// A checkpoint is written as step_00001000.tmp, renamed, then marked DONE. A folder without DONE is not a checkpoint, so the
// program may be stopped at any moment, also by a power loss: each file and each folder is synced before the next step.
// DONE has the format_version and the XXH3 of each file, which is checked before the file is used. trainer.json has the
// settings and data that the checkpoint belongs to. Checkpoints of version 0 have an empty DONE and none of these.
#pragma once

#include "io/tokenizer.h"
#include "model/formats/checkpoint_folder.h"
#include "tasks/task.h"
#include "train/gathered.h"

namespace horner {

// What a run remembers besides its weights.
struct TrainerState {
  int64_t step = 0;       // steps done
  int64_t tokens = 0;     // tokens read
  int64_t lines = 0;      // lines of metrics.jsonl
  double seconds = 0;     // of training
  double least_loss = 0;  // smallest loss so far; 0: none yet
  std::string stopped;    // why it ended early
  bool unscored = false;  // interrupted in the validation after `step`, which is to be done again

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("step", step, "steps that were done");
    visit("tokens", tokens, "tokens that were read");
    visit("lines", lines, "lines of metrics.jsonl");
    visit("seconds", seconds, "seconds of training");
    visit("least_loss", least_loss, "smallest loss so far");
    visit("stopped", stopped, "why the run ended early");
    visit("unscored", unscored, "the validation after this step is missing");
  }
};

// What is trained, and by whom.
struct Trained {
  Model& model;
  Optimizer& optimizer;
  Processes* processes = nullptr;      // null: only this one
  GatheredBlocks* gathered = nullptr;  // with Shard::full
};

// Writes a new checkpoint into `folder` and keeps the `keep` newest. If it cannot be written: RunError, and the old ones stay.
// `belongs`: the settings and data that it belongs to.
// Processes that share the optimiser out call it together, others call it in the first one.
void save_checkpoint(
    const std::string& folder,
    const Trained& trained,
    const TrainerState& state,
    const std::string& task_name,
    const Task& task,
    const Json& belongs,
    int64_t keep
);
// The newest complete checkpoint, or nothing. Deletes what an interruption left behind.
std::string newest_checkpoint(const std::string& folder);
// Deletes all but the `keep` newest.
void keep_newest(const std::string& folder, int64_t keep);
// Renames the checkpoint of `step` to diverged_NAME if it is the newest: the loss at its weights is not finite, so no run goes on
// from it. The new path, or nothing.
std::string set_diverged_aside(const std::string& folder, int64_t step);
// The newest one whose files are as they were written. Each damaged one is renamed to damaged_NAME, and a line of `notes`
// names its file.
std::string intact_checkpoint(const std::string& folder, std::vector<std::string>& notes);
// DataError if it belongs to other settings or data; what `belongs` does not hold is not compared.
TrainerState load_checkpoint(
    const std::string& checkpoint, Model& model, Optimizer& optimizer, const Json& belongs
);  // in every process

// The model and the tokenizer of any MODEL, by open_model.
std::shared_ptr<Model> load_model(const std::string& folder);
Tokenizer load_tokenizer_of(const std::string& folder);

// The files of a MODEL's weights, as env.json holds them: [{path, bytes, xxh128}]; none for an empty name.
Json weights_in(const std::string& model);
// Copies the weights of a MODEL (model/formats/formats.h) into `model`, wherever name and shape agree. DataError if there is no
// such MODEL, or if no weight agrees.
void begin_with(Model& model, const std::string& from);

}  // namespace horner
