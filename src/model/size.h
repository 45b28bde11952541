// How large a model is, from shapes alone: no weight is drawn, and no layer is made twice.
#pragma once

#include "model/model.h"

namespace horner {

inline constexpr int64_t kMostLayers = 65536, kMostWidth = 1 << 20, kMostTokens = 1 << 30;

// UsageError that names the setting if it lies beyond what any machine holds.
void check_size(const ModelOptions& options);

double parameters_of(const ModelOptions& options);  // of make_model(options, ..)

}  // namespace horner
