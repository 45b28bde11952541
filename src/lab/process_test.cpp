#include "lab/process.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

TEST(Process, PassesWordsAsTheyAre) {
  std::vector<std::string> lines;
  const std::vector<std::string> words = {"a b", "$(echo x); true", "it's \"here\"", ""};
  std::vector<std::string> command = {"printf", "%s\\n"};
  command.insert(command.end(), words.begin(), words.end());
  EXPECT_EQ(run_program(command, [&](const std::string& line) { lines.push_back(line); }), 0);
  EXPECT_EQ(lines, words);
}

TEST(Process, TellsHowItEnded) {
  EXPECT_EQ(run_program({"sh", "-c", "exit 3"}, [](const std::string&) {}), 3);
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, [](const std::string&) {}), 128 + 9);
  EXPECT_EQ(
      thrown<RunError>([] { run_program({"/no/such program"}, [](const std::string&) {}); }),
      "/no/such program: cannot be started: No such file or directory"
  );
}

}  // namespace
}  // namespace horner
