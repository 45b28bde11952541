// One example of a task as people read it, for pages.
#pragma once

#include "tasks/task.h"

namespace horner {

// The first test example, its first 128 tokens at most; null if the task has features instead of tokens.
//   tokens   texts          answers  text that is required at each of them; null: nothing is
//   next     each answer is the next token          label  class of the whole          T  of all tokens
Json example_of(const Task& task);

// What a page says about a task, without the task's data: name, T, metric, options, baselines, example.
Json describe_task(const Task& task, const std::string& name);
std::vector<Baseline> baselines_in(const Json& described);

}  // namespace horner
