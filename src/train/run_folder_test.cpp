#include "train/run_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/thrown_test.h"
#include "train/checkpoint.h"

namespace horner {
namespace {

Json file(const std::string& path, const std::string& hash) {
  return {{"path", path}, {"bytes", 3}, {"xxh128", hash}};
}

TEST(RunFolder, DataAreTheirContents) {
  const Json a = Json::array({file("here/a.txt", "1"), file("tokenizer.json", "2")});
  const Json moved = Json::array({file("there/a.txt", "1"), file("tokenizer.json", "2")});
  const Json edited = Json::array({file("here/a.txt", "1"), file("tokenizer.json", "3")});
  EXPECT_EQ(data_difference(a, moved), "");
  EXPECT_EQ(data_hash(a), data_hash(moved));
  EXPECT_NE(data_hash(a), data_hash(edited));
  EXPECT_TRUE(data_difference(a, edited).starts_with("tokenizer.json has other contents now"));
  EXPECT_EQ(data_difference(a, Json::array({a[0]})), "tokenizer.json is not there now");
  EXPECT_EQ(data_difference(Json::array({a[0]}), a), "tokenizer.json was not there then");
  const TrainOptions o;
  EXPECT_EQ(run_name(o, a), run_name(o, moved));
  EXPECT_NE(run_name(o, a), run_name(o, edited));
}

TEST(RunFolder, ARunFromBeforeDataWerePartOfTheNameKeepsItsName) {
  TrainOptions o;
  o.out = testing::TempDir() + "/horner_old_name_test";
  std::filesystem::remove_all(o.out);
  const Json sources = Json::array({file("a.txt", "1")});
  const Json data = Json::array({sources[0], file("tokenizer.json", "3")});
  const Json other = Json::array({file("a.txt", "2"), data[1]});
  const std::string before = run_name(o, Json::array());
  make_folder(o.out + "/" + before);
  write_file(o.out + "/" + before + "/env.json", Json{{"sources", sources}}.dump());
  EXPECT_EQ(run_name(o, data), before);
  EXPECT_NE(run_name(o, other), before);
  std::filesystem::remove_all(o.out);
}

TEST(RunFolder, ANewerVersionIsRefusedByItsNumber) {
  const auto check = [](const Json& json) {
    return thrown<DataError>([&] { check_format_version(json, "env.json"); });
  };
  EXPECT_EQ(check(Json::object()), "nothing");
  EXPECT_EQ(check({{"format_version", kFormatVersion}}), "nothing");
  EXPECT_EQ(
      check({{"format_version", kFormatVersion + 1}}),
      "env.json: has format_version 2, this program knows up to 1; use the one that wrote it"
  );
}

TEST(RunFolder, DifferenceNamesTheSetting) {
  const Json a = {{"optim", {{"lr", 1}}}, {"seed", 0}}, b = {{"optim", {{"lr", 2}}}, {"seed", 0}};
  EXPECT_EQ(difference(a, a), "");
  EXPECT_EQ(difference(a, b), "optim.lr = 1 then, 2 now");
  EXPECT_EQ(difference(a, b, "here", "there"), "optim.lr = 1 here, 2 there");
}

// As on a network drive that fails for a moment; here DONE is a link to itself.
TEST(RunFolder, ACheckpointWhoseMarkCannotBeReadIsKept) {
  const std::string folder = testing::TempDir() + "/horner_unreadable_mark_test";
  const std::string checkpoint = folder + "/" + checkpoint_name(3);
  std::filesystem::remove_all(folder);
  make_folder(checkpoint);
  write_file(checkpoint + "/model.safetensors", "weights");
  std::filesystem::create_symlink("DONE", checkpoint + "/DONE");
  EXPECT_THROW(newest_checkpoint(folder), std::filesystem::filesystem_error);
  EXPECT_THROW(keep_newest(folder, 1), std::filesystem::filesystem_error);
  EXPECT_EQ(read_file(checkpoint + "/model.safetensors"), "weights");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace horner
