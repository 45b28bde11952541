// What DONE holds, the last file of a folder: the version, and the checksum of each file. `damage` in checkpoint_folder.h
// compares them.
#pragma once

#include <string>

namespace horner {

std::string seal_of(const std::string& folder);

}  // namespace horner
