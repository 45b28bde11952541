#include "tasks/text/bytes_text.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "io/compressed.h"
#include "tasks/text/corpus.h"
#include "tasks/text/grammar.h"

namespace horner {
namespace {

std::string with_ending(const std::string& stem) {
  for (const char* ending : {"", ".xz", ".gz"}) {
    if (std::filesystem::exists(stem + ending)) return stem + ending;
  }
  throw DataError("{}: there is no such file, nor one with .xz or .gz", stem);
}

// Lines "label \t rating \t text".
LabelledTexts read_reviews(const std::string& path) {
  LabelledTexts reviews;
  int64_t number = 0;
  for (const std::string& line : cut_documents(read_decompressed(path), "line")) {
    ++number;
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first != 1 || second == line.npos || (line[0] != '0' && line[0] != '1')) {
      throw DataError(
          "{}:{}: must be label (0 or 1), rating and text, with tabs between", path, number
      );
    }
    reviews.add(line.substr(second + 1), line[0] - '0');
  }
  return reviews;
}

void add_passages(LabelledTexts& list, std::string_view text, int64_t T, int64_t label) {
  for (size_t at = 0; at + size_t(T) <= text.size(); at += size_t(T)) {
    list.add(std::string(text.substr(at, size_t(T))), label);
  }
}

}  // namespace

BytesText::BytesText(const Options& o) : LabelledTextTask(o.T, 2, byte_tokenizer()), o_(o) {
  const std::string folder = data_folder(o.data, "imdb", "bytes_text");
  const std::string train = with_ending(folder + "/train.tsv"),
                    test = with_ending(folder + "/test.tsv");
  files_ = find_text({train, test});
  splits_[0] = read_reviews(train);
  splits_[2] = read_reviews(test);
  hold_out(splits_, o.valid, uint64_t(o.seed));
}

BookId::BookId(const Options& o) : LabelledTextTask(o.T, o.books, byte_tokenizer()), o_(o) {
  HORNER_CHECK(o.books >= 2, "[book_id] books must be at least 2, got {}", o.books);
  files_ = find_text(o.data);
  std::vector<std::string> books;
  if (files_.grammar) books = grammar_documents(uint64_t(o.seed), 1 << 20);
  for (const TextFile& file : files_.files) {
    for (std::string& book : cut_documents(read_decompressed(file.path), o.documents)) {
      books.push_back(std::move(book));
    }
  }
  std::stable_sort(books.begin(), books.end(), [](const std::string& a, const std::string& b) {
    return a.size() > b.size();
  });
  if (int64_t(books.size()) < o.books || int64_t(books[size_t(o.books) - 1].size()) < 10 * o.T) {
    throw DataError(
        "[book_id] needs {} texts of at least {} bytes: see data and documents", o.books, 10 * o.T
    );
  }
  for (int64_t label = 0; label < o.books; ++label) {
    const std::string_view book = books[size_t(label)];
    const size_t a = book.size() * 8 / 10, b = book.size() * 9 / 10;
    add_passages(splits_[0], book.substr(0, a), o.T, label);
    add_passages(splits_[1], book.substr(a, b - a), o.T, label);
    add_passages(splits_[2], book.substr(b), o.T, label);
  }
}

}  // namespace horner
