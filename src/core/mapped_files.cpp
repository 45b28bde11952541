#include "core/mapped_files.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace horner {
namespace {

// A signal handler may not lock, so it reads a table that never moves. begin = 0: the place is free.
struct Mapped {
  std::atomic<uintptr_t> begin = 0;
  size_t size = 0;
  char path[256] = {};
};
Mapped table[512];
std::mutex mutex;  // of those who write

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void end(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Mapped& file : table) {
    const uintptr_t begin = file.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address - begin >= file.size) continue;
    say("horner: ");
    say(file.path);
    say(": became shorter or unreadable while it was in use; put a whole file there and start "
        "again\n");
    ::_exit(3);
  }
  std::signal(signal, SIG_DFL);  // not ours: it comes again at once
}

}  // namespace

void say_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = end;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;  // as in interrupt.cpp
  ::sigaction(SIGBUS, &action, nullptr);
}

void add_mapped(const void* begin, size_t size, const std::string& path) {
  const std::lock_guard lock(mutex);
  for (Mapped& file : table) {
    if (file.begin != 0) continue;
    file.size = size;
    file.path[path.copy(file.path, sizeof file.path - 1)] = 0;
    file.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    return;
  }
}

void remove_mapped(const void* begin) {
  const std::lock_guard lock(mutex);
  for (Mapped& file : table) {
    if (file.begin == reinterpret_cast<uintptr_t>(begin)) file.begin = 0;
  }
}

}  // namespace horner
