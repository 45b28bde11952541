#include "lab/convert/scores.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/check.h"
#include "core/interrupt.h"
#include "lab/score/parts.h"

namespace horner {
namespace {

constexpr int64_t kPieces = 2, kPiece = 512;  // of the test, that errors of heads are measured on

// `to` with a setting replaced.
MixerSpec with(MixerSpec to, const std::string& name, const std::string& value) {
  std::erase_if(to.settings, [&](const TypeSpec::Setting& s) { return s.name == name; });
  to.settings.push_back({name, value});
  return to;
}

// The two parts of a hybrid alone: the window without the state, and the state without the window.
void score_parts(
    Certificate& c,
    const Model& student,
    const Model& teacher,
    const Kept& kept,
    const ConvertScores& scores
) {
  const MixerSpec to = MixerSpec::parse(c.to);
  const bool whole = std::all_of(kept.begin(), kept.end(), [](bool stays) { return stays; });
  if (whole || !has_setting(find_mixer(to.name), "far") || to.find("far") == "none") return;
  ModelOptions like = teacher.options();
  like.tied = student.options().tied;
  const auto variant = [&](const MixerSpec& spec) {
    return shared_model(student_options(like, spec, kept), {&student, &teacher});
  };
  c.window_only = scores.of(variant(with(to, "far", "none")), "window only");
  c.state_only = scores.of(variant(with(with(to, "window", "1"), "sinks", "0")), "state only");
}

}  // namespace

void tell_step(const TellConvert& tell, const std::string& step, size_t done, size_t total) {
  if (interrupted())
    throw InterruptedError(
        "{} in the step '{}'; the same command does this step again",
        TimeLimit::reached() ? "time is up" : "stopped",
        step
    );
  if (tell.step) tell.step(step, done, total);
}

ConvertScores::ConvertScores(
    const LoadedModel& teacher,
    const ConvertOptions& options,
    const ConvertTexts& texts,
    at::Device device,
    const TellConvert& tell
)
    : teacher_(teacher), o_(options), texts_(texts), device_(device), tell_(tell) {
  settings_.limit = options.windows;
  teacher.model->to(device);
}

TextScore ConvertScores::of(const std::shared_ptr<Model>& student, const std::string& step) const {
  student->to(device_);
  const Asked asked{
      student, teacher_.model, teacher_.need_tokenizer(), o_.context, device_, settings_};
  return score_tokens(
      asked,
      texts_.test,
      "test",
      [&](size_t done, size_t total, const std::string&) { tell_step(tell_, step, done, total); }
  );
}

void ConvertScores::add_written(Certificate& c, Model& student) const {
  Model& teacher = *teacher_.model;
  if (o_.texts > 0) {
    tell_step(tell_, "texts of both", 0, 0);
    c.generated = generated_match(student, teacher, texts_.test, o_.texts, o_.context / 2);
  }
  const int64_t most = teacher.options().positions;
  for (const int64_t times : {1, 2, 4, 8}) {
    const int64_t T = times * o_.context;
    if (o_.needles == 0 || (most > 0 && T + 16 > most)) break;
    tell_step(tell_, fmt::format("numbers in {} tokens", T), 0, 0);
    const auto recall =
        needle_recall(student, teacher, teacher_.need_tokenizer(), texts_.test, T, o_.needles);
    if (recall) c.needles.push_back(*recall);
  }
}

void certify(
    Certificate& c,
    const LoadedModel& loaded,
    const std::shared_ptr<Model>& student,
    const Kept& kept,
    const ConvertTexts& texts,
    const ConvertScores& scores,
    const TellConvert& tell
) {
  const c10::NoGradGuard no_graph;
  Model& teacher = *loaded.model;
  score_parts(c, *student, teacher, kept, scores);
  scores.add_written(c, *student);
  tell_step(tell, "errors of heads", 0, 0);
  teacher.to(at::kCPU);
  student->to(at::kCPU);
  const TokenStream test(std::vector<uint32_t>(texts.test.begin(), texts.test.end()));
  c.heads =
      head_errors(teacher, *student, kept, pieces(test, 0, kPieces, std::min(kPiece, c.context)));
  for (const int64_t T : {c.context, 4 * c.context, 8 * c.context})
    c.states.push_back({T, state_bytes(student->options(), T), state_bytes(teacher.options(), T)});
}

}  // namespace horner
