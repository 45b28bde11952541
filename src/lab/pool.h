// Runs several programs, at most some number at a time, each with its output in a file.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace horner {

// Cores that this process may use: under taskset fewer than the machine has.
size_t cores();

struct Job {
  std::vector<std::string> words;        // program and arguments
  std::vector<std::string> environment;  // NAME=value, added to this process's
  std::string log;                       // file for what it prints
};

struct JobEnd {
  int code = -1;   // exit code
  int signal = 0;  // that killed it; 0: none
  bool well() const { return code == 0 && signal == 0; }
};

// Waits until all have ended and returns how. A job that is this program dies with this process (core/parent.h).
// `tell` is called a few times a second. On Ctrl-C the jobs are asked to save and end, and
// InterruptedError is thrown once they have.
std::vector<JobEnd> run_jobs(
    const std::vector<Job>& jobs, size_t at_once, const std::function<void()>& tell
);

}  // namespace horner
