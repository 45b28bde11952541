// Numbers as people read them, in tables, pages and sentences.
#pragma once

#include <string>

namespace horner {

std::string short_number(double x);  // 0, 3.1e-15, 12
std::string short_bytes(double x);   // 512 B, 16 KiB, 20.5 MiB, 1.25 GiB

}  // namespace horner
