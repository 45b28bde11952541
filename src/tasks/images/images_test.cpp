// Pathfinder, pixels and patches.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "core/check.h"
#include "core/data_test.h"
#include "core/file.h"
#include "io/idx.h"
#include "tasks/images/pathfinder.h"
#include "tasks/images/pixels.h"
#include "tasks/rows_test.h"

namespace horner {
namespace {

void expect_discs_to_shine(const PathfinderOptions& options, int64_t n) {
  const Pathfinder task(options);
  for (int64_t index = 0; index < n; ++index) {
    const Pathfinder::Image image = task.image(Split::train, index);
    for (const Pathfinder::Place& disc : image.discs) {
      const auto pixel = size_t(int64_t(disc.row) * options.side + int64_t(disc.col));
      EXPECT_GE(int(image.grey[pixel]), 200) << options.side << " " << index;
    }
    int64_t paddles = 0;
    for (const uint8_t grey : image.grey) paddles += grey > 100 && grey < 235;
    EXPECT_GT(paddles, 2 * options.contour) << options.side << " " << index;
  }
}

TEST(Pathfinder, BothDiscsShine) {
  expect_discs_to_shine({}, 100);
  PathfinderOptions large;
  large.side = 128;
  expect_discs_to_shine(large, 5);
}

TEST(Pathfinder, LabelsAreBalanced) {
  const Batch batch = make_task("pathfinder")->batch(Split::train, first(400));
  EXPECT_NEAR(batch.labels.to(at::kDouble).mean().item<double>(), 0.5, 0.1);  // 4 sigma
}

// An image is the same whatever its label, but for the discs: what lies elsewhere tells nothing.
TEST(Pathfinder, TheLabelMovesOneDisc) {
  const Pathfinder task{PathfinderOptions{}};
  double apart[2] = {0, 0};
  int64_t count[2] = {0, 0};
  for (int64_t index = 0; index < 200; ++index) {
    const Pathfinder::Image image = task.image(Split::test, index);
    const auto [a, b] = image.discs;
    apart[image.label] += std::hypot(a.row - b.row, a.col - b.col);
    ++count[image.label];
  }
  const double same = apart[1] / double(count[1]), other = apart[0] / double(count[0]);
  EXPECT_NEAR(same, other, 4);  // pixels, of 32
}

TEST(Pathfinder, OptionsHoldTheWholeTable) {
  const Json options = make_task("pathfinder:side=128")->options();
  for (const auto& [key, value] : options.items()) EXPECT_FALSE(value.is_null()) << key;
  EXPECT_EQ(options["paddle"], 5);
}

std::string idx(const std::vector<unsigned char>& sizes, const std::string& bytes) {
  std::string text{'\0', '\0', '\x08', char(sizes.size())};
  for (const unsigned char size : sizes) text += std::string{'\0', '\0', '\0', char(size)};
  return text + bytes;
}

TEST(Idx, RefusesWhatItIsNot) {
  EXPECT_EQ(parse_idx(idx({2, 3}, "abcdef"), "x").sizes, (std::vector<int64_t>{2, 3}));
  for (const std::string& wrong :
       {std::string(),
        std::string("abcdefgh"),
        idx({2, 3}, "abcde"),
        idx({2, 3}, "abcdefg"),
        std::string("\0\0\x0d\1\0\0\0\0", 8),
        std::string("\0\0\x08\3\0\0\0\1", 8),
        std::string("\0\0\x08\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16)}) {
    EXPECT_THROW(parse_idx(wrong, "x"), DataError);
  }
}

// Four images of training, two of test, 2 x 4 pixels each: pixel i of image n is 10 n + i.
class Pictures : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "horner_pictures";
    make_folder(folder_.string());
    const auto images = [](unsigned char n) {
      std::string bytes;
      for (int image = 0; image < n; ++image) {
        for (int i = 0; i < 8; ++i) bytes += char(10 * image + i);
      }
      return idx({n, 2, 4}, bytes);
    };
    write("train-images-idx3-ubyte", images(4));
    write("train-labels-idx1-ubyte", idx({4}, std::string{0, 1, 2, 0}));
    write("t10k-images-idx3-ubyte", images(2));
    write("t10k-labels-idx1-ubyte", idx({2}, std::string{1, 2}));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) {
    write_file((folder_ / name).string(), content);
  }
  std::filesystem::path folder_;
};

TEST_F(Pictures, Pixels) {
  const auto task = make_task(fmt::format("pixels:data={},valid=1", folder_.string()));
  EXPECT_EQ(task->shape().T, 8);
  EXPECT_EQ(task->shape().classes, 3);
  EXPECT_EQ(task->size(Split::train), 3);
  EXPECT_EQ(task->size(Split::valid), 1);
  EXPECT_EQ(task->size(Split::test), 2);
  const Batch batch = task->batch(Split::train, {2, 0});
  EXPECT_EQ(numbers(batch.tokens[0]), (std::vector<int64_t>{20, 21, 22, 23, 24, 25, 26, 27}));
  EXPECT_EQ(numbers(batch.labels), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(task->batch(Split::valid, {0}).tokens[0][0].item<int64_t>(), 30);
  EXPECT_THROW(task->batch(Split::train, {3}), UsageError);
  EXPECT_EQ(task->sources().size(), 4u);
  EXPECT_EQ(task->baselines().at(1).score, 0);  // the majority is class 0
}

TEST_F(Pictures, Patches) {
  const auto task = make_task(fmt::format("patches:data={},valid=1,p=2", folder_.string()));
  EXPECT_EQ(task->shape().T, 2);
  EXPECT_EQ(task->shape().features, 4);
  const at::Tensor x = task->batch(Split::test, {1}).features * 255;  // (1,2,4)
  const at::Tensor expected = at::tensor({10., 11., 14., 15., 12., 13., 16., 17.});
  EXPECT_TRUE(at::allclose(x.flatten().to(at::kDouble), expected.to(at::kDouble), 0, 1e-4));
  EXPECT_THROW(make_task(fmt::format("patches:data={},valid=1,p=3", folder_.string())), UsageError);
}

// Copies of an image are the image moved by up to 4 pixels, mirrored or not; the test stays as it is.
TEST_F(Pictures, AugmentedCopies) {
  const auto plain = make_task(fmt::format("patches:data={},valid=1,p=2", folder_.string()));
  const auto task =
      make_task(fmt::format("patches:data={},valid=1,p=2,augment=50", folder_.string()));
  const int64_t n = plain->size(Split::train);
  EXPECT_EQ(task->size(Split::train), 50 * n);
  EXPECT_EQ(task->size(Split::test), plain->size(Split::test));
  const auto same = [](const Batch& a, const Batch& b) {
    return at::equal(a.features, b.features);
  };
  EXPECT_TRUE(same(task->batch(Split::test, {1}), plain->batch(Split::test, {1})));
  const auto image = [](const Batch& b) {  // (2,4) pixels of two patches
    return b.features[0].view({1, 2, 2, 2}).transpose(1, 2).reshape({2, 4}) * 255;
  };
  const at::Tensor x = image(plain->batch(Split::train, {0}));
  const at::Tensor padded = at::constant_pad_nd(x, {4, 4, 4, 4});
  std::set<int64_t> kinds;
  for (int64_t copy = 0; copy < 50; ++copy) {
    const Batch b = task->batch(Split::train, {copy * n});
    EXPECT_TRUE(same(b, task->batch(Split::train, {copy * n})));
    EXPECT_TRUE(at::equal(b.labels, plain->batch(Split::train, {0}).labels));
    bool found = false;
    for (int64_t kind = 0; kind < 2 * 81 && !found; ++kind) {
      at::Tensor moved = padded.narrow(0, kind % 9, 2).narrow(1, kind / 9 % 9, 4);
      if (kind >= 81) moved = moved.flip(1);
      found = at::allclose(image(b), moved, 0, 1e-4);
      if (found) kinds.insert(kind);
    }
    EXPECT_TRUE(found) << copy;
  }
  EXPECT_GT(kinds.size(), 5u);
}

TEST_F(Pictures, SaysWhatIsMissing) {
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_THROW(make_task(fmt::format("pixels:data={},valid=1", folder_.string())), DataError);
  write("t10k-labels-idx1-ubyte", idx({3}, std::string{0, 0, 0}));
  EXPECT_THROW(make_task(fmt::format("pixels:data={},valid=1", folder_.string())), DataError);
}

// Own figure of the specification.
TEST(PixelsSlow, NearestCentroidOfTheDataSet) {
  const std::string path = test_data("cifar10_gray");
  HORNER_NEED(path);
  const auto task = make_task(fmt::format("pixels:data={}", path));
  EXPECT_EQ(task->shape().T, 1024);
  EXPECT_EQ(task->size(Split::train), 45000);
  std::map<std::string, double> score;
  for (const Baseline& baseline : task->baselines()) score[baseline.name] = baseline.score;
  EXPECT_NEAR(score["centroid"], 0.241, 0.004);
  EXPECT_GT(score["centroid"], score["histogram"]);
  EXPECT_GT(score["histogram"], 0.12);
}

}  // namespace
}  // namespace horner
