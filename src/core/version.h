// Which Horner this is, and which source it was built from.
#pragma once

namespace horner {

// "0.1.0". CMakeLists.txt states it, and everything else asks: horner --version, horner.__version__, the wheel, the package.
const char* version();

// "1a2b3c4d5e6f", with a "+" if files differed from the commit, or "unknown" outside a repository.
const char* commit();

}  // namespace horner
