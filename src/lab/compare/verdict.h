// The verdict of a comparison in words that a person can quote, and the reasons to doubt it.
#pragma once

#include "lab/compare/compare.h"

namespace horner {

std::string verdict(const CompareResult&);
std::vector<std::string> warnings(const CompareResult&);

}  // namespace horner
