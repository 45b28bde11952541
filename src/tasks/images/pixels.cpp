#include "tasks/images/pixels.h"

#include <ATen/Functions.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/hash.h"
#include "io/idx.h"
#include "tasks/examples.h"

namespace horner {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const PixelsOptions& options, std::string_view task) {
  if (!options.data.empty()) return options.data;
  const char* data = std::getenv("HORNER_DATA");
  if (data != nullptr) return (fs::path(data) / "cifar10_gray").string();
  throw DataError(
      "[{}] no images: give {}:data=FOLDER with the files train-images-idx3-ubyte and so on, or "
      "set HORNER_DATA to a folder that holds cifar10_gray",
      task,
      task
  );
}

std::string find(const std::string& folder, std::string_view split, std::string_view rest) {
  std::vector<std::string> names = {fmt::format("{}-{}", split, rest)};
  if (split == "test") names.push_back(fmt::format("t10k-{}", rest));
  for (const std::string& name : names) {
    for (const char* end : {"", ".gz", ".xz"}) {
      const std::string path = (fs::path(folder) / (name + end)).string();
      if (fs::exists(path)) return path;
    }
  }
  throw DataError("{}: no file {} or {}.gz", folder, names[0], names[0]);
}

at::Tensor bytes_of(const std::string& path, size_t dims, Json& sources) {
  Idx idx = read_idx(path);
  if (idx.sizes.size() != dims || idx.bytes.empty()) {
    throw DataError(
        "{}: {} dims, {} bytes; needs {} dims", path, idx.sizes.size(), idx.bytes.size(), dims
    );
  }
  sources.push_back({{"path", path}, {"bytes", fs::file_size(path)}, {"hash", xxh128(idx.bytes)}});
  at::Tensor tensor = at::empty(idx.sizes, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), idx.bytes.data(), idx.bytes.size());
  return tensor;
}

// Training images, less those of validation.
int64_t count(const Images& images, int64_t valid, Split split) {
  if (split == Split::test) return images.test.size(0);
  return split == Split::valid ? valid : images.train.size(0) - valid;
}

struct Chosen {
  at::Tensor pixels, labels;  // (B,rows,cols) bytes, (B)
};

Chosen choose(
    const Images& images, int64_t valid, Split split, const std::vector<int64_t>& indices
) {
  segment_of({count(images, valid, split)}, indices);
  const int64_t start = split == Split::valid ? images.train.size(0) - valid : 0;
  const at::Tensor rows = at::tensor(indices, at::kLong) + start;
  const bool test = split == Split::test;
  return {
      (test ? images.test : images.train).index_select(0, rows),
      (test ? images.test_labels : images.train_labels).index_select(0, rows)};
}

// Test accuracy of the class whose mean of `features` in training is nearest. (n,F) float
double nearest_centroid(
    const Images& images,
    int64_t train,
    const std::function<at::Tensor(const at::Tensor&)>& features
) {
  const at::Tensor x = features(images.train.narrow(0, 0, train));
  const at::Tensor labels = images.train_labels.narrow(0, 0, train);
  at::Tensor centroids = at::zeros({images.classes, x.size(1)});
  centroids.index_add_(0, labels, x);
  const at::Tensor members = at::bincount(labels, {}, images.classes).unsqueeze(1);
  const at::Tensor means = centroids / members.clamp_min(1);
  const at::Tensor nearest = at::cdist(features(images.test), means).argmin(1);
  return (nearest == images.test_labels).to(at::kDouble).mean().item<double>();
}

at::Tensor as_floats(const at::Tensor& images) { return images.flatten(1).to(at::kFloat) / 255; }

at::Tensor histograms(const at::Tensor& images) {  // (n,256), square roots of shares
  const at::Tensor flat = images.flatten(1);
  const int64_t n = flat.size(0), pixels = flat.size(1);
  at::Tensor counts = at::zeros({n, 256}, at::kFloat);
  const uint8_t* bytes = flat.const_data_ptr<uint8_t>();
  float* out = counts.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n * pixels; ++i) out[i / pixels * 256 + bytes[i]] += 1;
  return (counts / double(pixels)).sqrt();
}

constexpr int64_t kMove = 4;      // pixels
constexpr uint64_t kCopies = 77;  // seed

// Each image as its index says: moved by up to kMove pixels with zeros behind it, then perhaps mirrored.
at::Tensor augmented(const at::Tensor& images, const std::vector<int64_t>& indices) {
  const int64_t rows = images.size(1), cols = images.size(2);
  const at::Tensor padded = at::constant_pad_nd(images, {kMove, kMove, kMove, kMove});
  std::vector<at::Tensor> list;
  for (size_t i = 0; i < indices.size(); ++i) {
    Random random(kCopies, Split::train, Stream::noise, uint64_t(indices[i]));
    const int64_t down = random.integer(2 * kMove + 1), right = random.integer(2 * kMove + 1);
    const at::Tensor moved = padded[int64_t(i)].narrow(0, down, rows).narrow(1, right, cols);
    list.push_back(random.integer(2) == 1 ? moved.flip(1) : moved);
  }
  return at::stack(list);
}

Images patch_images(const PatchesOptions& options) {
  HORNER_CHECK(options.p >= 1, "[patches] p must be at least 1, got {}", options.p);
  HORNER_CHECK(
      options.augment >= 0 && options.augment <= 1000000,
      "[patches] augment must be 0 .. 1000000, got {}",
      options.augment
  );
  return read_images(options, "patches");
}

std::vector<Baseline> image_baselines(const Images& images, int64_t valid) {
  const int64_t train = count(images, valid, Split::train);
  const at::Tensor frequent =
      at::bincount(images.train_labels.narrow(0, 0, train), {}, images.classes).argmax();
  const double majority = (images.test_labels == frequent).to(at::kDouble).mean().item<double>();
  return {
      {"chance", 1.0 / double(images.classes), "any class"},
      {"majority", majority, "the most frequent class of training"},
      {"histogram", nearest_centroid(images, train, histograms), "nearest mean histogram of greys"},
      {"centroid", nearest_centroid(images, train, as_floats), "nearest mean image"}};
}

}  // namespace

Images read_images(const PixelsOptions& options, std::string_view task) {
  HORNER_CHECK(options.valid >= 1, "[{}] valid must be at least 1, got {}", task, options.valid);
  const std::string folder = folder_of(options, task);
  Images images;
  images.sources = Json::array();
  const auto read = [&](std::string_view split, at::Tensor& pixels, at::Tensor& labels) {
    const std::string path = find(folder, split, "images-idx3-ubyte");
    pixels = bytes_of(path, 3, images.sources);
    labels = bytes_of(find(folder, split, "labels-idx1-ubyte"), 1, images.sources).to(at::kLong);
    if (pixels.size(0) != labels.size(0)) {
      throw DataError("{}: {} images, {} labels", path, pixels.size(0), labels.size(0));
    }
  };
  read("train", images.train, images.train_labels);
  read("test", images.test, images.test_labels);
  images.rows = images.train.size(1);
  images.cols = images.train.size(2);
  if (images.test.size(1) != images.rows || images.test.size(2) != images.cols) {
    throw DataError("{}: images of training and test differ in size", folder);
  }
  HORNER_CHECK(
      options.valid < images.train.size(0),
      "[{}] valid must leave some of {} images, got {}",
      task,
      images.train.size(0),
      options.valid
  );
  const auto largest = [](const at::Tensor& labels) { return labels.max().item<int64_t>(); };
  images.classes = 1 + std::max(largest(images.train_labels), largest(images.test_labels));
  return images;
}

TaskShape Pixels::shape() const {
  return {
      .T = images_.rows * images_.cols,
      .vocabulary = 256,
      .classes = images_.classes,
      .causal = false};
}

int64_t Pixels::size(Split split) const { return count(images_, o_.valid, split); }

Batch Pixels::batch(Split split, const std::vector<int64_t>& indices) const {
  const Chosen chosen = choose(images_, o_.valid, split, indices);
  Batch batch;
  batch.tokens = chosen.pixels.flatten(1).to(at::kLong);
  batch.labels = chosen.labels;
  return batch;
}

std::vector<Baseline> Pixels::baselines() const { return image_baselines(images_, o_.valid); }

Patches::Patches(const Options& options) : o_(options), images_(patch_images(options)) {
  HORNER_CHECK(
      images_.rows % o_.p == 0 && images_.cols % o_.p == 0,
      "[patches] p={} does not divide images of {} x {}",
      o_.p,
      images_.rows,
      images_.cols
  );
}

TaskShape Patches::shape() const {
  return {
      .T = images_.rows / o_.p * (images_.cols / o_.p),
      .features = o_.p * o_.p,
      .classes = images_.classes,
      .causal = false};
}

int64_t Patches::size(Split split) const {
  const int64_t copies = split == Split::train ? std::max<int64_t>(1, o_.augment) : 1;
  return copies * count(images_, o_.valid, split);
}

Batch Patches::batch(Split split, const std::vector<int64_t>& indices) const {
  segment_of({size(split)}, indices);
  std::vector<int64_t> sources = indices;
  for (int64_t& index : sources) index %= count(images_, o_.valid, split);
  Chosen chosen = choose(images_, o_.valid, split, sources);
  if (split == Split::train && o_.augment > 0) chosen.pixels = augmented(chosen.pixels, indices);
  const int64_t B = chosen.pixels.size(0), p = o_.p;
  const at::Tensor grid =  // (B, patch row, patch column, p, p)
      chosen.pixels.view({B, images_.rows / p, p, images_.cols / p, p}).transpose(2, 3);
  Batch batch;
  batch.features = grid.reshape({B, -1, p * p}).to(at::kFloat) / 255;
  batch.labels = chosen.labels;
  return batch;
}

std::vector<Baseline> Patches::baselines() const { return image_baselines(images_, o_.valid); }

}  // namespace horner
