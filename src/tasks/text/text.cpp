#include "tasks/text/text.h"

#include <ATen/Functions.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/check.h"
#include "core/number.h"
#include "model/formats/formats.h"
#include "tasks/examples.h"
#include "tasks/text/ngram.h"

namespace horner {
namespace {

constexpr size_t kNgramTrainBytes = 1 << 20, kNgramTestBytes = 1 << 18;
constexpr std::array kSplitNames = {"training", "validation", "test"};

std::shared_ptr<const Corpus> corpus_of(
    const ByteTaskOptions& o, std::shared_ptr<const Corpus> given
) {
  if (given) return given;
  return std::make_shared<const Corpus>(
      o.characters ? make_character_corpus(o) : make_corpus(o, byte_tokenizer())
  );
}

std::shared_ptr<const Corpus> corpus_of(
    const BpeTaskOptions& o, std::shared_ptr<const Corpus> given
) {
  if (given) return given;
  return std::make_shared<const Corpus>(make_corpus(o, open_tokenizer(o.tokenizer)));
}

// integer() draws from at most 2^32.
int64_t place_below(int64_t n, Random& random) {
  if (n <= int64_t{1} << 32) return random.integer(n);
  const uint64_t high = random.word();
  return int64_t((high << 32 | random.word()) % uint64_t(n));
}

template <class TaskOf, class Options>
std::shared_ptr<Task> with_length(Options o, int64_t T, std::shared_ptr<const Corpus> corpus) {
  o.T = T;
  return std::make_shared<TaskOf>(o, std::move(corpus));
}

}  // namespace

ByteTask::ByteTask(const Options& o, std::shared_ptr<const Corpus> corpus)
    : TextTask(o, corpus_of(o, std::move(corpus))), o_(o) {}

BpeTask::BpeTask(const Options& o, std::shared_ptr<const Corpus> corpus)
    : TextTask(o, corpus_of(o, std::move(corpus))), o_(o) {}

std::shared_ptr<Task> ByteTask::at_length(int64_t T) const {
  return with_length<ByteTask>(o_, T, corpus_);
}

std::shared_ptr<Task> BpeTask::at_length(int64_t T) const {
  return with_length<BpeTask>(o_, T, corpus_);
}

TextTask::TextTask(const TextOptions& options, std::shared_ptr<const Corpus> corpus)
    : corpus_(std::move(corpus)), text_(options) {
  HORNER_CHECK(text_.T >= 1, "[text] T must be at least 1, got {}", text_.T);
  const Tokenizer& tokenizer = corpus_->tokenizer;
  HORNER_CHECK(
      text_.packing == "stream" || tokenizer.end(),
      "[text] packing doc needs a tokenizer with a token that ends a document"
  );
  for (size_t i = 0; i < 3; ++i) {
    const TokenStream& tokens = corpus_->splits.streams[i];
    HORNER_CHECK(
        tokens.size() > text_.T,
        "[text] the {} text has {} tokens, T = {} needs more",
        kSplitNames[i],
        tokens.size(),
        text_.T
    );
    std::vector<double>& bytes = token_bytes_[i];
    for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
      bytes.push_back(double(tokenizer.bytes(id).size()));
    }
    // A tokenizer that changes the text: the tokens share the bytes of the original.
    double sum = 0;
    for (int64_t t = 0; t < tokens.size(); ++t) {
      if (tokens[t] >= int64_t(bytes.size())) {
        throw DataError("[text] token {} of the {} text is damaged", t, kSplitNames[i]);
      }
      sum += bytes[size_t(tokens[t])];
    }
    if (sum > 0 && sum != corpus_->splits.bytes[i]) {
      for (double& value : bytes) value *= corpus_->splits.bytes[i] / sum;
    }
  }
}

TaskShape TextTask::shape() const {
  TaskShape shape;
  shape.T = text_.T;
  shape.vocabulary = corpus_->tokenizer.vocabulary();
  return shape;
}

std::string TextTask::token_text(int64_t id) const {
  const std::string bytes(corpus_->tokenizer.bytes(int32_t(id)));
  if (bytes.empty()) return "\u2022";  // between documents
  if (!is_utf8(bytes)) return fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[0]));
  std::string text;
  for (const char c : bytes) text += c == '\n' ? "\u23ce" : c == ' ' ? "\u2423" : std::string(1, c);
  return text;
}

std::string TextTask::metric() const {
  return corpus_->tokenizer.kind() == "characters" ? "loss" : "bits per byte";
}

int64_t TextTask::windows(Split split) const {
  return (stream(split).size() - 1 + text_.T - 1) / text_.T;
}

int64_t TextTask::size(Split split) const {
  return split == Split::train && text_.sampling == "random" ? kEndless : windows(split);
}

Batch TextTask::batch(Split split, const std::vector<int64_t>& indices) const {
  const TokenStream& s = stream(split);
  const int64_t B = int64_t(indices.size()), T = text_.T, n = s.size(), most = size(split);
  HORNER_CHECK(B > 0, "[text] a batch needs at least one example");
  for (const int64_t index : indices) {
    HORNER_CHECK(index >= 0 && index < most, "[text] there is no example {} of {}", index, most);
  }
  Batch batch;
  batch.tokens = at::empty({B, T}, at::kLong);
  batch.targets = at::empty({B, T}, at::kLong);
  std::vector<double> bytes(indices.size());
  each_example(indices, [&](int64_t row, int64_t index) {
    int64_t begin = index * T, scored = 0;  // the first position that counts
    if (most == kEndless) {
      Random random(uint64_t(text_.seed), split, Stream::content, uint64_t(index));
      begin = place_below(n - T, random);
    } else if (begin + T >= n) {
      scored = begin - (n - 1 - T);
      begin = n - 1 - T;
    }
    int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>() + row * T;
    int64_t* targets = batch.targets.mutable_data_ptr<int64_t>() + row * T;
    for (int64_t t = 0; t < T; ++t) {
      tokens[t] = s[begin + t];
      targets[t] = t < scored ? kNoTarget : s[begin + t + 1];
      if (t >= scored) bytes[size_t(row)] += token_bytes_[size_t(split)][size_t(targets[t])];
    }
  });
  batch.bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  if (text_.packing == "doc") {
    batch.tokens = batch.tokens.view({1, B * T});
    batch.targets = batch.targets.view({1, B * T});
    const int64_t* tokens = batch.tokens.const_data_ptr<int64_t>();
    std::vector<int64_t> starts;
    for (int64_t t = 0; t < B * T; ++t) {
      if (t % T == 0 || tokens[t] == *corpus_->tokenizer.end()) starts.push_back(t);
    }
    starts.push_back(B * T);
    batch.cu_seqlens = at::tensor(starts, at::kLong);
  }
  return batch;
}

std::string TextTask::text(Split split, size_t most) const {
  std::string text;
  for (int64_t t = 0; t < stream(split).size() && text.size() < most; ++t) {
    text += corpus_->tokenizer.bytes(int32_t(stream(split)[t]));
  }
  return text;
}

std::vector<Baseline> TextTask::baselines() const {
  std::call_once(counted_, [&] {
    const std::string counted = text(Split::train, kNgramTrainBytes);
    const auto bits = ngram_bits(counted, text(Split::test, kNgramTestBytes), 4);
    // The score of the metric: bits per byte, or nats per character.
    const TokenStream& test = stream(Split::test);
    const double nats = std::numbers::ln2 * corpus_->splits.bytes[2] / double(test.size());
    const double unit = metric() == "loss" ? nats : 1;
    baselines_.push_back({"uniform", 8 * unit, "every byte alike"});
    for (const size_t order : {0u, 2u, 4u}) {
      baselines_.push_back(
          {fmt::format("order {}", order),
           bits[order] * unit,
           fmt::format(
               "Witten-Bell n-gram of {} bytes of context, counted on {} of the training text",
               order,
               short_bytes(double(counted.size()))
           )}
      );
    }
  });
  return baselines_;
}

}  // namespace horner
