// Plain text made readable: code, links and raised powers.
#pragma once

#include <string>

namespace horner {

std::string raised(const std::string& text);  // "L^-1" as "L⁻¹"; plain text
// HTML, escaped: `x` is code, arXiv:1234.56789 a link, and powers are raised.
std::string rich(const std::string& text);
// Code, escaped: a line ends after spaces and commas, not after the hyphens of a flag.
std::string flags_whole(const std::string& text);

}  // namespace horner
