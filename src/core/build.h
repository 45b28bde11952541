// Whether the program and libhorner.so come from one build. While a build runs, the program of yesterday may be started with the
// library of today. If a struct has changed between them, one reads and writes memory that the other laid out differently.
#pragma once

namespace horner {

// SHA-1 of the headers of the source, as each was built from.
const char* library_headers();
extern const char* const kProgramHeaders;  // in the program alone

}  // namespace horner
