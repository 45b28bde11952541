#include "core/parent.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace horner {
namespace {

constexpr const char* kName = "HORNER_PARENT";

}  // namespace

std::string parent_variable() { return std::string(kName) + "=" + std::to_string(::getpid()); }

void die_with_parent() {
  const char* parent = std::getenv(kName);
  if (parent == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != parent) std::raise(SIGKILL);
  ::unsetenv(kName);
}

}  // namespace horner
