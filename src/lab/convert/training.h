// The training of a student: align, then distil, each a run of the trainer; and what an interrupted conversion goes on from.
//
//   OUT/training/   conversion.json   settings and data: a command with others is refused
//                   tokens.bin        the texts as tokens
//                   start/            the student before training, a model folder; start.json in it: layers that stay, plan; DONE
//                   align/, distil/   run folders of the trainer with checkpoints (train/run_folder.h)
//                   start.json, ..    the score after a step
//                   lock              who writes
#pragma once

#include <memory>

#include "core/folder_lock.h"
#include "lab/convert/scores.h"

namespace horner {

class WorkFolder {
 public:
  // UsageError if OUT holds another conversion, or a finished one. Writes nothing. `data`: files that decide the outcome.
  WorkFolder(const ConvertOptions& options, const Json& data);
  void open();  // makes it, and locks it as long as this lives
  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // Whether an earlier command has written the start, and it is not damaged; then `tell` gets a line.
  bool started(const TellConvert& tell) const;
  void write_start(const Model& student, const LoadedModel& like, const Json& described) const;
  std::optional<ConvertStep> finished(const std::string& step) const;  // with its score
  void write_step(const ConvertStep& step) const;

 private:
  const std::string folder_;
  const Json is_;  // what conversion.json holds
  std::unique_ptr<FolderLock> lock_;
};

struct StepCounts {
  int64_t align = 0, distil = 0;  // steps of the optimiser
};
StepCounts step_counts(const ConvertOptions& options);  // UsageError if tokens do not make a step

// Trains the student on the device of `scores`. Adds each step to the certificate. `last`: the student's score, if this
// process has measured it.
void train_student(
    Certificate& certificate,
    std::optional<TextScore>& last,
    const LoadedModel& teacher,
    const std::shared_ptr<Model>& student,
    const Kept& kept,
    const ConvertTexts& texts,
    const ConvertOptions& options,
    const WorkFolder& work,
    const ConvertScores& scores,
    const TellConvert& tell
);

}  // namespace horner
