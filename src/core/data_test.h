// Data that are no part of the repository, for the tests that read them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace horner {

// A file or folder of HORNER_DATA, or of ../shared/data.
inline std::string test_data(const std::string& path) {
  const char* folder = std::getenv("HORNER_DATA");
  return fmt::format("{}/{}", folder ? folder : "../shared/data", path);
}

}  // namespace horner

// Skips the test, visibly, where a path is not there.
#define HORNER_NEED(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << (path) << " is not there"
