// Ctrl-C: as a flag while work runs that must be saved, or as an end at once. A time limit sets the same flag.
#pragma once

namespace horner {

bool interrupted();

// InterruptedError if a signal interrupted the program. A time limit, and processes of torchrun, stop between two steps.
void stop_if_alone(const char* where);

// While it lives, `interrupted` is also true once so many seconds have passed; 0: no limit. One at a time.
class TimeLimit {
 public:
  explicit TimeLimit(double seconds);
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  ~TimeLimit();
  static bool reached();  // by the one that lives; false if none does, or after a signal
};

// While it lives, SIGINT and SIGTERM only set the flag. The same signal again ends the program at once.
class CatchInterrupt {
 public:
  CatchInterrupt();
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;
  ~CatchInterrupt();
};

// For work that leaves nothing to save, inside the life of a CatchInterrupt: the first signal prints the line and ends the
// program at once, with exit code 130. The line must live as long as the program. Nothing in other threads than the main one:
// there the runs beside it have something to save.
class EndOnInterrupt {
 public:
  explicit EndOnInterrupt(const char* line);
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;
  ~EndOnInterrupt();

 private:
  bool active_;
};

}  // namespace horner
