#include "lab/pool.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "core/check.h"
#include "core/interrupt.h"
#include "core/parent.h"
#include "lab/process.h"

namespace horner {
namespace {

pid_t start(Job job) {
  job.environment.push_back(parent_variable());
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& own : job.environment) replaced = replaced || own.starts_with(name);
    if (!replaced) all.push_back(text);
  }
  all.insert(all.end(), job.environment.begin(), job.environment.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(
      &actions, 1, job.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644
  );
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // A process group of its own, so that Ctrl-C reaches only this process. It forwards the signal once; a second signal would
  // end the jobs without saving.
  posix_spawnattr_t own_group;
  posix_spawnattr_init(&own_group);
  posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
  pid_t id = 0;
  const int error = posix_spawn(
      &id,
      job.words[0].c_str(),
      &actions,
      &own_group,
      spawn_pointers(job.words).data(),
      spawn_pointers(all).data()
  );
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&own_group);
  if (error != 0) throw RunError("{}: cannot be started: {}", job.words[0], std::strerror(error));
  return id;
}

}  // namespace

size_t cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return size_t(std::max(1, count));
}

std::vector<JobEnd> run_jobs(
    const std::vector<Job>& jobs, size_t at_once, const std::function<void()>& tell
) {
  std::vector<JobEnd> ends(jobs.size());
  std::map<pid_t, size_t> running;
  size_t next = 0;
  bool asked = false;
  while (next < jobs.size() || !running.empty()) {
    if (interrupted() && !asked) {
      for (const auto& [id, job] : running) kill(id, SIGTERM);
      asked = true;
      next = jobs.size();
    }
    while (next < jobs.size() && running.size() < at_once) {
      running[start(jobs[next])] = next;
      ++next;
    }
    for (auto it = running.begin(); it != running.end();) {
      int status = 0;
      const bool ended = waitpid(it->first, &status, WNOHANG) == it->first;
      if (ended && WIFEXITED(status)) ends[it->second].code = WEXITSTATUS(status);
      if (ended && WIFSIGNALED(status)) ends[it->second].signal = WTERMSIG(status);
      it = ended ? running.erase(it) : std::next(it);
    }
    if (tell) tell();
    if (!running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (asked)
    throw InterruptedError("stopped; the same command goes on from the checkpoints of its runs");
  return ends;
}

}  // namespace horner
