// Which source this program was built from.
#pragma once

namespace horner {

// "1a2b3c4d5e6f", with a "+" if files differed from the commit, or "unknown" outside a repository.
const char* commit();

}  // namespace horner
