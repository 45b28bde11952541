// Runs beside what was expected of them: the record of known answers.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace horner {

struct KnownAnswer {
  std::string run, task;
  std::vector<std::string> pattern;
  std::string expected;
  double measured = 0;  // NaN: the run has no such score
  bool holds = false;
  int64_t steps = 0;
  double seconds = 0;
  std::string precision, device;
  int64_t seed = 0;
  std::string commit, date;
};

// One per run and expectation, from result.json and env.json of the folders. DataError where a run
// has not ended or its files are of another version; UsageError where nothing was expected of one.
std::vector<KnownAnswer> known_answers(const std::vector<std::string>& folders);

Json answers_json(const std::vector<KnownAnswer>&);
// The same for a person; `command` is what made it.
std::string answers_markdown(const std::vector<KnownAnswer>&, const std::string& command);

}  // namespace horner
