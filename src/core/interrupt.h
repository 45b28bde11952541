// Ctrl-C as a flag: while a CatchInterrupt lives, SIGINT and SIGTERM only set a flag, so that the running work can be saved. A
// second signal ends the program at once.
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
