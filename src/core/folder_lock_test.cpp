#include "core/folder_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/thrown_test.h"

namespace horner {
namespace {

TEST(FolderLock, NamesItsHolderUntilItEnds) {
  const std::string folder = testing::TempDir() + "/horner_lock_test";
  std::filesystem::remove_all(folder);
  make_folder(folder);
  {
    const FolderLock lock(folder);
    const std::string text = thrown<RunError>([&] { const FolderLock second(folder); });
    EXPECT_TRUE(text.starts_with(fmt::format("{}: is in use by process {} on ", folder, ::getpid()))
    ) << text;
  }
  EXPECT_EQ(thrown<RunError>([&] { const FolderLock again(folder); }), "nothing");
  std::filesystem::remove_all(folder);
}

// The lock's text must not replace what a link leads to.
TEST(FolderLock, FollowsNoLink) {
  const std::string folder = testing::TempDir() + "/horner_lock_link_test";
  std::filesystem::remove_all(folder);
  make_folder(folder);
  write_file(folder + "/kept", "content");
  std::filesystem::create_symlink("kept", folder + "/lock");
  EXPECT_NE(thrown<RunError>([&] { const FolderLock lock(folder); }), "nothing");
  EXPECT_EQ(read_file(folder + "/kept"), "content");
  std::filesystem::remove_all(folder);
}

TEST(File, FolderAbove) {
  EXPECT_EQ(folder_above("runs/a"), "runs");
  EXPECT_EQ(folder_above("runs/"), ".");
  EXPECT_EQ(folder_above("a"), ".");
  EXPECT_EQ(folder_above("/a"), "/");
}

}  // namespace
}  // namespace horner
