#include "core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/check.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

TEST(File, APipeIsWrittenAndStaysAPipe) {
  const std::string path = testing::TempDir() + "file_pipe";
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  write_file(path, "text");
  char text[8] = {};
  EXPECT_EQ(read(reader, text, sizeof text), 4);
  EXPECT_STREQ(text, "text");
  EXPECT_TRUE(fs::is_fifo(path));
  close(reader);
  fs::remove(path);
}

TEST(File, AFullDeviceIsAnError) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(
      thrown<RunError>([] { write_file("/dev/full", "text"); }),
      "/dev/full: cannot be written: No space left on device"
  );
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace horner
