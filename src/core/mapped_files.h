// Mapped files that become unreadable while they are in use.
//
// A file that becomes shorter, or whose disk fails, ends the program by SIGBUS when its missing part is read. Whoever overwrites
// the weights of a running server does that. `say_bus_errors` gives it a line that names the file, and exit code 3.
#pragma once

#include <cstddef>
#include <string>

namespace horner {

void say_bus_errors();  // for programs; a library must leave the signal to its program

// What MappedFile tells. Files beyond the 512th are not named.
void add_mapped(const void* begin, size_t size, const std::string& path);
void remove_mapped(const void* begin);

}  // namespace horner
