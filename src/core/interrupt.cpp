#include "core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/check.h"

namespace horner {
namespace {

volatile std::sig_atomic_t flag = 0;
bool caught = false;  // whether a CatchInterrupt lives
const char* volatile last_line = "";
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> limit = kNever;  // nanoseconds of steady_clock

int64_t clock_now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}
bool over() { return limit != kNever && clock_now() >= limit; }

// Handlers get a stack of their own. Matrix products of libraries use the stack pointer as one more register; a handler that
// runs where it points to would overwrite their memory, or the heap's.
void make_stack() {
  stack_t now = {};
  if (::sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  alignas(64) static char memory[1 << 16];  // the registers of AVX-512 and AMX take 11 KiB
  now.ss_sp = memory;
  now.ss_size = sizeof memory;
  now.ss_flags = 0;
  ::sigaltstack(&now, nullptr);
}

void handle_by(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

// Only this signal's second time ends the program: torchrun adds a SIGTERM to the terminal's SIGINT.
void remember(int signal) {
  flag = 1;
  std::signal(signal, SIG_DFL);
}

void end(int) {  // only what a signal handler may call
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, last_line, std::strlen(last_line));
  ::_exit(130);
}

}  // namespace

bool interrupted() { return flag != 0 || over(); }

void stop_if_alone(const char* where) {
  if (flag != 0 && std::getenv("WORLD_SIZE") == nullptr)
    throw InterruptedError("stopped while {}; the same command goes on", where);
}

TimeLimit::TimeLimit(double seconds) {
  limit = seconds > 0 ? clock_now() + int64_t(seconds * 1e9) : kNever;
}

TimeLimit::~TimeLimit() { limit = kNever; }

bool TimeLimit::reached() { return flag == 0 && over(); }

CatchInterrupt::CatchInterrupt() {
  flag = 0;
  caught = true;
  make_stack();
  handle_by(remember);
}

CatchInterrupt::~CatchInterrupt() {
  caught = false;
  handle_by(SIG_DFL);
}

EndOnInterrupt::EndOnInterrupt(const char* line) : active_(caught && ::gettid() == ::getpid()) {
  if (!active_) return;  // signals have their default already
  last_line = line;
  handle_by(end);
  if (flag != 0) end(0);  // it came just before
}

EndOnInterrupt::~EndOnInterrupt() {
  if (active_) handle_by(remember);
}

}  // namespace horner
