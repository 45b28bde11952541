#include "tasks/text/labelled_text.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/check.h"
#include "tasks/examples.h"

namespace horner {

LabelledTextTask::LabelledTextTask(int64_t T, int64_t classes, Tokenizer tokenizer)
    : classes_(classes), T_(T), tokenizer_(std::move(tokenizer)) {
  HORNER_CHECK(T >= 1, "[text] T must be at least 1, got {}", T);
}

TaskShape LabelledTextTask::shape() const {
  TaskShape shape;
  shape.T = T_;
  shape.vocabulary = 1 + (tokenizer_.kind() == "bytes" ? 256 : tokenizer_.vocabulary());
  shape.classes = classes_;
  shape.causal = false;
  return shape;
}

int64_t LabelledTextTask::size(Split split) const {
  return int64_t(splits_[size_t(split)].texts.size());
}

Batch LabelledTextTask::batch(Split split, const std::vector<int64_t>& indices) const {
  const LabelledTexts& examples = splits_[size_t(split)];
  const auto B = int64_t(indices.size());
  HORNER_CHECK(B > 0, "[text] a batch needs at least one example");
  std::vector<std::vector<int32_t>> ids(indices.size());
  for (const int64_t index : indices) {
    HORNER_CHECK(index >= 0 && index < size(split), "[text] there is no example {}", index);
  }
  each_example(indices, [&](int64_t row, int64_t index) {
    const std::string& text = examples.texts[size_t(index)];
    auto& list = ids[size_t(row)];
    list = tokenizer_.encode(
        tokenizer_.kind() == "bytes" ? std::string_view(text).substr(0, size_t(T_)) : text,
        {.control = false}
    );
    if (int64_t(list.size()) > T_) list.resize(size_t(T_));
  });
  size_t longest = 1;
  for (const auto& list : ids) longest = std::max(longest, list.size());
  const int64_t T = std::min(T_, (int64_t(longest) + 63) / 64 * 64);
  Batch batch;
  batch.tokens = at::zeros({B, T}, at::kLong);
  batch.labels = at::empty({B}, at::kLong);
  batch.lengths = at::empty({B}, at::kLong);
  for (int64_t row = 0; row < B; ++row) {
    const auto& list = ids[size_t(row)];
    int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>() + row * T;
    for (size_t t = 0; t < list.size(); ++t) tokens[t] = 1 + list[t];
    // An empty text is one position of padding: a mean over none is no number.
    batch.lengths.mutable_data_ptr<int64_t>()[row] = std::max<int64_t>(1, int64_t(list.size()));
    batch.labels.mutable_data_ptr<int64_t>()[row] = examples.labels[size_t(indices[size_t(row)])];
  }
  return batch;
}

std::vector<Baseline> LabelledTextTask::baselines() const {
  std::call_once(counted_, [&] {
    const LabelledTexts &train = splits_[0], &test = splits_[2];
    std::vector<int64_t> counts(static_cast<size_t>(classes_));
    for (const int64_t label : train.labels) ++counts[size_t(label)];
    const int64_t majority = std::max_element(counts.begin(), counts.end()) - counts.begin();
    const auto hits = std::count(test.labels.begin(), test.labels.end(), majority);
    const auto bayes = [&](int n) {
      return naive_bayes_accuracy(train, test, classes_, n, size_t(T_));
    };
    baselines_ = {
        {"majority", double(hits) / double(test.labels.size()), "the most frequent class"},
        {"bytes", bayes(1), "naive Bayes: which bytes occur"},
        {"trigrams", bayes(3), "naive Bayes: which runs of three bytes occur"}};
  });
  return baselines_;
}

void hold_out(LabelledSplits& splits, int64_t count, uint64_t seed) {
  LabelledTexts& all = splits[0];
  const auto n = int64_t(all.texts.size());
  HORNER_CHECK(count > 0 && count < n, "[text] {} of {} cannot be held out", count, n);
  LabelledTexts rest;
  const std::vector<int64_t> order = permutation(seed, Split::train, 0, n);
  for (int64_t i = 0; i < n; ++i) {
    const auto from = size_t(order[size_t(i)]);
    (i < count ? splits[1] : rest).add(std::move(all.texts[from]), all.labels[from]);
  }
  all = std::move(rest);
}

std::string data_folder(const std::string& data, const std::string& name, std::string_view task) {
  if (!data.empty()) return data;
  if (const char* folder = std::getenv("HORNER_DATA")) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (std::filesystem::exists(path)) return path;
    throw DataError("{}: there is no such folder; {} needs it, or data=FOLDER", path, task);
  }
  throw DataError(
      "[{}] name the data with data=FOLDER, or set HORNER_DATA to a folder with {}", task, name
  );
}

}  // namespace horner
