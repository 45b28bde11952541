// Several programs at once: each with its output in a file, at most so many at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace horner {

// Cores that this process may use: fewer than the machine has under taskset.
size_t cores();

struct Job {
  std::vector<std::string> words;        // program and arguments
  std::vector<std::string> environment;  // NAME=value, added to this process's
  std::string log;                       // file for what it prints
};

// Waits until all have ended and gives their exit codes (128 + signal where one was killed).
// `tell` is called a few times a second. On Ctrl-C the jobs are asked to save and end, and
// InterruptedError is thrown once they have.
std::vector<int> run_jobs(
    const std::vector<Job>& jobs, size_t at_once, const std::function<void()>& tell
);

}  // namespace horner
