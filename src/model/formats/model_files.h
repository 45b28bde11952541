// The files that decide what a MODEL computes and how it reads text: to tell models apart.
#pragma once

#include <string>

#include "core/json.h"

namespace horner {

// Weights, then config.json and the tokenizer's files: [{path, bytes, xxh128}].
Json model_files(const std::string& model);

}  // namespace horner
