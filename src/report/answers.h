// Runs beside what was expected of them: the record of known answers.
#pragma once

#include "core/json.h"

namespace horner {

// A row per run and expectation, from result.json and env.json of the folders. DataError where a
// run has not ended; UsageError where nothing was expected of one.
Json known_answers(const std::vector<std::string>& folders);

// The same for a person; `command` is what made it.
std::string answers_markdown(const Json& rows, const std::string& command);

}  // namespace horner
