// The text of the repository, for commands that read one when none is given.
#pragma once

#include <string>

namespace horner {

// `given`, or if it is empty examples/text/shakespeare.txt: from here, or from the folder of the program. DataError if it is in
// neither.
std::string find_text(const std::string& given);

}  // namespace horner
