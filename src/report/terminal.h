// Text that fits the terminal it is shown on.
#pragma once

#include <string>

#include "report/table.h"

namespace horner {

size_t terminal_width(int descriptor);  // columns; 0: it is no terminal

size_t columns_of(const std::string& text);                    // code points, not bytes
std::string clipped(const std::string& text, size_t columns);  // the first of them; 0: all
std::string fitted(const Table& table);                        // to stdout, if it is a terminal
std::string fitted(const std::string& paragraph);
std::string wrapped(const std::string& text, size_t columns);  // broken at spaces; 0: as it is
// As `wrapped`; the lines after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t columns, size_t indent);

}  // namespace horner
