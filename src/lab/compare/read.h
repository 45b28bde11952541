// Reads compare.json back into the result that wrote it, so that `horner report` can make the page again.
#pragma once

#include "lab/compare/compare.h"

namespace horner {

// DataError that names the file and the field if a field is missing or has another type. Runs have what the file holds:
// mixer, learning rate, seed, failure, folder, scores of the metric, steps and seconds.
CompareResult read_compare(const std::string& path);
CompareResult compare_from(const Json& json, const std::string& source);

}  // namespace horner
