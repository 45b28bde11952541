// Ctrl-C as a question: while a CatchInterrupt lives, SIGINT and SIGTERM only set a flag, so that
// what runs can save its work. A second signal ends the program at once.
#pragma once

namespace horner {

bool interrupted();

class CatchInterrupt {
 public:
  CatchInterrupt();
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;
  ~CatchInterrupt();
};

}  // namespace horner
