// The message of an error, for tests that name the rule which was broken.
#pragma once

#include <string>

namespace horner {

// The message of the exception of this type that f throws; "nothing" if it throws nothing.
template <class Error, class F>
std::string thrown(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace horner
