// A task on a page: what it is, and a test example drawn.
#pragma once

#include <string>

#include "core/json.h"

namespace horner {

// The first test example of a described task (tasks/example.h), as boxes of tokens; empty: it has none.
std::string task_example(const Json& task);

}  // namespace horner
