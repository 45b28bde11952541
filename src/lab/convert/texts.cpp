#include "lab/convert/texts.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/random.h"
#include "io/compressed.h"
#include "lab/bundled_text.h"
#include "lab/convert/convert.h"

namespace horner {
namespace {

using Ids = std::vector<uint32_t>;

std::vector<std::string> files_of(const ConvertOptions& o) {
  return o.text.empty() ? std::vector<std::string>{find_text("")} : o.text;
}

Ids tokens_of(const LoadedModel& loaded, const std::vector<std::string>& paths) {
  Ids all;
  for (const std::string& path : paths) {
    for (const int32_t id :
         loaded.need_tokenizer().encode(read_decompressed(path), {.control = false})) {
      if (id >= loaded.model->options().vocabulary)
        throw DataError(
            "{}: token {} is outside the model's vocabulary of {}",
            path,
            id,
            loaded.model->options().vocabulary
        );
      all.push_back(uint32_t(id));
    }
  }
  return all;
}

std::vector<int64_t> copied(const TokenStream& tokens) {
  std::vector<int64_t> list(size_t(tokens.size()), 0);
  for (int64_t i = 0; i < tokens.size(); ++i) list[size_t(i)] = tokens[i];
  return list;
}

// What the cache holds; nothing if there is none, or if it is damaged: then the texts are read again.
std::optional<TokenSplits> cached(const std::string& cache) {
  try {
    return cache.empty() ? std::nullopt : read_tokens(cache);
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

Json text_sources(const ConvertOptions& o) {
  Json list = Json::array();
  std::vector<std::string> paths = files_of(o);
  paths.insert(paths.end(), o.test.begin(), o.test.end());
  for (const std::string& path : paths) {
    const std::string hash = xxh128_of_file(path);
    list.push_back({{"path", path}, {"bytes", std::filesystem::file_size(path)}, {"xxh128", hash}});
  }
  return list;
}

ConvertTexts read_texts(
    const LoadedModel& loaded, const ConvertOptions& o, const std::string& cache
) {
  ConvertTexts t;
  t.files = files_of(o);
  t.test_name =
      o.test.empty() ? "the last tenth of the text" : fmt::format("{}", fmt::join(o.test, ", "));
  if (const auto before = cached(cache)) {
    t.train = before->streams[size_t(Split::train)];
    t.test = copied(before->streams[size_t(Split::test)]);
  } else if (o.test.empty()) {
    const TokenStream all(tokens_of(loaded, t.files));
    const int64_t cut = all.size() * 9 / 10;
    t.train = all.slice(0, cut);
    t.test = copied(all.slice(cut, all.size()));
  } else {
    t.train = TokenStream(tokens_of(loaded, t.files));
    t.test = copied(TokenStream(tokens_of(loaded, o.test)));
  }
  if (int64_t(t.test.size()) < 2 * o.context)
    throw DataError(
        "{}: has {} tokens, two windows want {}", t.test_name, t.test.size(), 2 * o.context
    );
  if (o.tokens > 0 && t.train.size() <= o.length)
    throw DataError(
        "the text has {} tokens, windows of length {} need more", t.train.size(), o.length
    );
  return t;
}

void write_cache(const ConvertTexts& t, const std::string& cache, int64_t vocabulary) {
  const TokenStream test(Ids(t.test.begin(), t.test.end()));
  TokenSplits splits;
  splits.streams = {t.train, test, test};
  write_tokens(cache, splits, vocabulary);
}

at::Tensor pieces(const TokenStream& tokens, int64_t begin, int64_t most, int64_t T) {
  const int64_t n = std::min(most, (tokens.size() - begin) / T);
  if (n < 1)
    throw DataError(
        "the text has {} tokens, {} are needed to calibrate on", tokens.size(), begin + T
    );
  return at::tensor(copied(tokens.slice(begin, begin + n * T)), at::kLong).view({n, T});
}

}  // namespace horner
