// Scores of students against their teacher, and the certificate made of them.
#pragma once

#include "lab/convert/convert.h"
#include "lab/convert/texts.h"

namespace horner {

// Throws InterruptedError where the command was told to stop, or its time is over.
void tell_step(const TellConvert& tell, const std::string& step, size_t done, size_t total);

// Scores models on the test text.
class ConvertScores {
 public:
  // The teacher is moved to `device`, and every student that is scored.
  ConvertScores(
      const LoadedModel& teacher,
      const ConvertOptions& options,
      const ConvertTexts& texts,
      at::Device device,
      const TellConvert& tell
  );
  // What both write, and what they find in long texts, into the certificate.
  void add_written(Certificate& certificate, Model& student) const;
  TextScore of(const std::shared_ptr<Model>& student, const std::string& step) const;

 private:
  const LoadedModel& teacher_;
  const ConvertOptions& o_;
  const ConvertTexts& texts_;
  const at::Device device_;
  const TellConvert& tell_;
  ScoreOptions settings_;
};

// Everything that is measured of the finished student; its own score aside. Leaves both models on the CPU.
void certify(
    Certificate& certificate,
    const LoadedModel& teacher,
    const std::shared_ptr<Model>& student,
    const Kept& kept,
    const ConvertTexts& texts,
    const ConvertScores& scores,
    const TellConvert& tell
);

}  // namespace horner
