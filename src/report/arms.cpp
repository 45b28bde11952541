#include "report/arms.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "report/equations.h"
#include "report/html.h"
#include "report/palette.h"
#include "report/task_example.h"
#include "tasks/example.h"
#include "tasks/task.h"

namespace horner {
namespace {

std::vector<Arm> arms_of(const Reproduction& r, const Finding& f) {
  for (const Claim& claim : r.paper->claims) {
    if (claim.name == f.claim && claim.arms != nullptr)
      return claim.arms(f.scale == "gpu" ? Effort::gpu : Effort::cpu);
  }
  return {};
}

}  // namespace

std::string arm_mixer(const Reproduction& r, const Finding& f, const std::string& arm) {
  for (const Arm& one : arms_of(r, f)) {
    if (one.label == arm) return one.options.model.pattern.back();
  }
  return "";
}

int arm_colour(const Reproduction& r, const Finding& f, const std::string& arm) {
  const std::string mixer = arm_mixer(r, f, arm);
  return mixer.empty() ? listed_colour(arm) : mixer_colour(mixer);
}

std::string arm_equations(const Reproduction& r, const Finding& f) {
  std::vector<NamedMixer> mixers;
  for (const Arm& arm : arms_of(r, f)) {
    for (const std::string& spec : arm.options.model.pattern)
      mixers.push_back({arm.label, spec, arm.options.model.D});
  }
  return equations(mixers);
}

std::string arm_task(const Reproduction& r, const Finding& f) {
  const std::vector<Arm> arms = arms_of(r, f);
  if (arms.empty() || std::any_of(arms.begin(), arms.end(), [&](const Arm& arm) {
        return arm.options.task != arms[0].options.task;
      }))
    return "";
  try {
    const std::shared_ptr<Task> task = make_task(arms[0].options.task);
    if (!task->sources().empty()) return "";  // a page must not depend on this machine's files
    const std::string drawn = task_example(describe_task(*task, arms[0].options.task));
    // Scores may be of an earlier setting than the arms.
    const bool later = f.earlier || f.reason.starts_with("withdrawn");
    return drawn.empty() || !later ? drawn : paragraph("The task of the next run:") + drawn;
  } catch (const DataError&) {
    return "";
  }
}

}  // namespace horner
