#include "lab/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/check.h"

namespace horner {
namespace {

// The program with its stdout in a pipe, whose other end it returns.
pid_t start(std::vector<std::string> words, std::FILE*& output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw RunError("no pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  // This program ignores SIGPIPE; the other one ends by it when nobody reads.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t id = 0;
  const int error = posix_spawnp(
      &id, words[0].c_str(), &actions, &attributes, spawn_pointers(words).data(), environ
  );
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw RunError("{}: cannot be started: {}", words[0], std::strerror(error));
  }
  output = ::fdopen(ends[0], "r");
  return id;
}

}  // namespace

std::vector<char*> spawn_pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_program(
    const std::vector<std::string>& words, const std::function<void(const std::string&)>& line
) {
  std::FILE* output = nullptr;
  const pid_t id = start(words, output);
  const auto wait = [&] {
    int status = 0;
    while (::waitpid(id, &status, 0) < 0 && errno == EINTR) continue;
    return exit_code(status);
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(output, std::fclose);
  try {
    std::string text;
    for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
      if (c != '\n') {
        text += char(c);
        continue;
      }
      line(text);
      text.clear();
    }
    if (!text.empty()) line(text);
  } catch (...) {
    file.reset();  // it ends when nobody reads
    wait();
    throw;
  }
  return wait();
}

std::string repository_file(const std::string& name) {
  namespace fs = std::filesystem;
  if (fs::exists(name)) return name;
  std::error_code error;
  for (fs::path at = fs::read_symlink("/proc/self/exe", error).parent_path();
       at.has_relative_path();
       at = at.parent_path()) {
    if (fs::exists(at / name)) return at / name;
  }
  throw DataError("{}: is not here; run this in the repository's root", name);
}

}  // namespace horner
