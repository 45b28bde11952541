// Data that are no part of the repository, for the tests that read them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace horner {

// A file or folder in the folder that HORNER_DATA names; empty if HORNER_DATA is not set.
inline std::string test_data(const std::string& path) {
  const char* folder = std::getenv("HORNER_DATA");
  return folder ? fmt::format("{}/{}", folder, path) : "";
}

}  // namespace horner

// Skips the test, visibly, if a path of test_data does not exist.
#define HORNER_NEED(path)                                                   \
  if (!std::filesystem::exists(path))                                       \
  GTEST_SKIP()                                                              \
      << (std::string(path).empty() ? "HORNER_DATA names no folder of data" \
                                    : "HORNER_DATA lacks some data")
