// What a comparison says, in words that a person can quote, and what stands against it.
#pragma once

#include "lab/compare/compare.h"

namespace horner {

std::string verdict(const CompareResult&);
std::vector<std::string> warnings(const CompareResult&);

}  // namespace horner
