// A program that this one starts dies with it, however this one dies, so that no orphan goes on writing.
//
//   parent   adds parent_variable() to the child's environment
//   child    calls die_with_parent() first thing in main: it asks the kernel for SIGKILL at the parent's death, then looks
//            whether the parent has died before that. posix_spawn cannot ask for a child.
#pragma once

#include <string>

namespace horner {

std::string parent_variable();  // HORNER_PARENT=pid
void die_with_parent();         // nothing without that variable, which it removes

}  // namespace horner
