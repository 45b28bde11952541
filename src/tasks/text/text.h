// Language modelling: the next token of a text.
//
//   byte   id = byte, 256 separates documents; N = 257        bpe   any tokenizer that is read
//
//   stream  separator, document, separator, ... in windows: inputs s_i .. s_{i+T-1}, targets one later;
//           the context crosses documents
//   doc     the same windows side by side as one packed row; state and positions restart at each
//           separator, which is the target of a document's last token and the input before the next
//
// Training draws windows at random places, int(n - T), or takes them in order (`epoch`). Validation and test take all windows
// and score every token once; the last window starts earlier, and its repeated tokens are context only. The first token is
// scored, with the separator before it. No state is carried from window to window.
#pragma once

#include <mutex>

#include "tasks/task.h"
#include "tasks/text/corpus.h"

namespace horner {

struct TextOptions : CorpusOptions {
  int64_t T = 256;
  std::string packing = "stream";
  std::string sampling = "random";

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "tokens of a window");
    visit("packing", packing, "doc: documents do not see each other", {"stream", "doc"});
    visit("sampling", sampling, "of training windows", {"random", "epoch"});
    CorpusOptions::visit(visit);
  }
};

struct ByteTaskOptions : TextOptions {
  bool characters = false;

  template <class Visitor>
  void visit(Visitor&& visit) {
    TextOptions::visit(visit);
    visit("characters", characters, "ids are the sorted distinct characters; no separator");
  }
};

struct BpeTaskOptions : TextOptions {
  std::string tokenizer = "bytes";

  template <class Visitor>
  void visit(Visitor&& visit) {
    TextOptions::visit(visit);
    visit(
        "tokenizer", tokenizer, "MODEL, folder, tokenizer.json, vocab.json or vocab.txt; or bytes"
    );
  }
};

class TextTask : public Task {
 public:
  TextTask(const TextOptions& options, std::shared_ptr<const Corpus> corpus);
  TaskShape shape() const override;
  std::string token_text(int64_t id) const;  // a token as people read it
  int64_t size(Split split) const override;
  Batch batch(Split split, const std::vector<int64_t>& indices) const override;
  std::vector<Baseline> baselines() const override;  // n-grams over at most 1 MB, see ngram.h
  std::string metric() const override;
  Json sources() const override { return corpus_->sources; }
  std::vector<std::pair<std::string, std::string>> tokenizer_files() const override {
    return corpus_->tokenizer.files();
  }
  const Corpus& corpus() const { return *corpus_; }

 protected:
  std::shared_ptr<const Corpus> corpus_;

 private:
  const TokenStream& stream(Split split) const { return corpus_->splits.streams[size_t(split)]; }
  int64_t windows(Split split) const;
  std::string text(Split split, size_t most) const;

  const TextOptions text_;
  std::array<std::vector<double>, 3> token_bytes_;  // of text, by split and id
  mutable std::once_flag counted_;
  mutable std::vector<Baseline> baselines_;
};

class ByteTask : public TextTask {
 public:
  using Options = ByteTaskOptions;
  explicit ByteTask(const Options& options, std::shared_ptr<const Corpus> corpus = nullptr);
  std::shared_ptr<Task> at_length(int64_t T) const override;
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

class BpeTask : public TextTask {
 public:
  using Options = BpeTaskOptions;
  explicit BpeTask(const Options& options, std::shared_ptr<const Corpus> corpus = nullptr);
  std::shared_ptr<Task> at_length(int64_t T) const override;
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

}  // namespace horner
