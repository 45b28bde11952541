// Two tasks on long texts as bytes, id = byte + 1.
//
//   bytes_text   is a review good? IMDb as in the Long Range Arena (arXiv:2011.04006); validation is
//                2 500 of training's 25 000 (others choose settings on the test)
//   book_id      which book is a passage of T bytes from? The largest texts of a folder; the first
//                80 % of each train, the next 10 % validate, the last 10 % test
#pragma once

#include "tasks/text/labelled_text.h"

namespace horner {

struct BytesTextOptions {
  int64_t T = 4000;
  std::string data;
  int64_t valid = 2500;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "bytes that are read of a text");
    visit(
        "data",
        data,
        "folder with train.tsv and test.tsv (label, rating, text); empty: imdb of HORNER_DATA"
    );
    visit("valid", valid, "examples of training that validate");
    visit("seed", seed, "seed of the data");
  }
};

class BytesText : public LabelledTextTask {
 public:
  using Options = BytesTextOptions;
  explicit BytesText(const Options& options);
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

struct BookIdOptions {
  int64_t T = 4000;
  std::vector<std::string> data;
  std::string documents = "file";
  int64_t books = 20;
  int64_t seed = 1234;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("T", T, "bytes of a passage");
    visit("data", data, "files or folders of books; empty: what is there, as for the task byte");
    visit(
        "documents",
        documents,
        "what a book is: file, line, blank (empty lines between), or its end"
    );
    visit("books", books, "classes: that many of the largest");
    visit("seed", seed, "seed of the data");
  }
};

class BookId : public LabelledTextTask {
 public:
  using Options = BookIdOptions;
  explicit BookId(const Options& options);
  Json options() const override { return to_json(o_); }

 private:
  const Options o_;
};

}  // namespace horner
