// compare.json back into the result it was written from, so that `horner report` makes its page again.
#pragma once

#include "lab/compare/compare.h"

namespace horner {

// DataError that names the file and the field where one is missing or is something else. Of runs it has what
// the file has: mixer, learning rate, seed, failure, folder, scores of the metric, steps and seconds.
CompareResult read_compare(const std::string& path);
CompareResult compare_from(const Json& json, const std::string& source);

}  // namespace horner
