#include "core/interrupt.h"

#include <csignal>

namespace horner {
namespace {

volatile std::sig_atomic_t flag = 0;

void remember(int signal) {
  flag = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

bool interrupted() { return flag != 0; }

CatchInterrupt::CatchInterrupt() {
  flag = 0;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}

CatchInterrupt::~CatchInterrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace horner
