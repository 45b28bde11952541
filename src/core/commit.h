// Which source this program was built from.
#pragma once

namespace horner {

// "1a2b3c4d5e6f", with a "+" where files differed from it, or "unknown" outside a repository.
const char* commit();

}  // namespace horner
