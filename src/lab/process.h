// Runs one program to its end and reads its output line by line. There is no shell: words are passed unchanged.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace horner {

// The first word is a path or a name on PATH. Calls `line` for each line of its stdout, without the
// end; stderr goes where this process's goes. Returns the exit code, or 128 + signal;
// RunError if it cannot be started.
int run_program(
    const std::vector<std::string>& words, const std::function<void(const std::string&)>& line
);

// A file of the source tree that the program was built from, seen from here or from the program. DataError if it is not there.
std::string repository_file(const std::string& name);

// For posix_spawn: pointers to the words and a null; the words must outlive them.
std::vector<char*> spawn_pointers(std::vector<std::string>& words);
int exit_code(int wait_status);  // 128 + signal where it was killed

}  // namespace horner
