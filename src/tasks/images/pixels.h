// Images, pixel by pixel (arXiv:2011.04006) or patch by patch.
//
//   pixels   id = grey value, row by row: T = rows x columns
//   patches  p x p pixels / 255 as features, row by row, and row by row in a patch: d = p^2
//            augment = n: training has n copies of each image, each moved by -4 .. 4 pixels along both sides (zeros come in)
//            and mirrored with probability 1/2; copy c of image i is example i + c times the number of images
//
// Files: {train,test}-images-idx3-ubyte and {train,test}-labels-idx1-ubyte (t10k- is taken for test-),
// plain or .gz, in the folder `data`, or else in cifar10_gray of the folder HORNER_DATA. The last
// `valid` images of training are validation.
#pragma once

#include "tasks/task.h"

namespace horner {

struct PixelsOptions {
  std::string data;
  int64_t valid = 5000;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("data", data, "folder of the IDX files; empty: cifar10_gray of HORNER_DATA");
    visit("valid", valid, "the last images of training, taken for validation");
  }
};

struct PatchesOptions : PixelsOptions {
  int64_t p = 4;
  int64_t augment = 0;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("p", p, "pixels along a side of a patch");
    visit("augment", augment, "copies of each training image, moved and mirrored; 0: the images");
    PixelsOptions::visit(visit);
  }
};

// A data set of grey images.
struct Images {
  int64_t rows = 0, cols = 0, classes = 0;
  at::Tensor train, train_labels, test, test_labels;  // (n,rows,cols) bytes, (n) int64
  Json sources;                                       // files
};

Images read_images(const PixelsOptions& options, std::string_view task);

class Pixels : public Task {
 public:
  using Options = PixelsOptions;
  explicit Pixels(const Options& options) : o_(options), images_(read_images(options, "pixels")) {}
  TaskShape shape() const override;
  int64_t size(Split split) const override;
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }
  Json sources() const override { return images_.sources; }

 private:
  const Options o_;
  const Images images_;
};

class Patches : public Task {
 public:
  using Options = PatchesOptions;
  explicit Patches(const Options& options);
  TaskShape shape() const override;
  int64_t size(Split split) const override;
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::vector<Baseline> baselines() const override;
  Json options() const override { return to_json(o_); }
  Json sources() const override { return images_.sources; }

 private:
  const Options o_;
  const Images images_;
};

}  // namespace horner
