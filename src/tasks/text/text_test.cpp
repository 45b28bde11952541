#include "tasks/text/text.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/data_test.h"
#include "io/compressed.h"
#include "tasks/rows_test.h"
#include "tasks/text/bytes_text.h"
#include "tasks/text/classify_text.h"
#include "tasks/text/grammar.h"
#include "tasks/text/ngram.h"

namespace horner {
namespace {

// A folder that is removed again.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() / fmt::format("horner_text_{}", getpid())) {
    make_folder(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name, std::string_view content) const {
    write_file(path + "/" + name, content);
    return path + "/" + name;
  }
  std::string path;
};

ByteTaskOptions options_for(const std::string& path) {
  ByteTaskOptions o;
  o.data = {path};
  return o;
}

TEST(Text, WindowsOfAStream) {
  const Folder folder;
  ByteTaskOptions o = options_for(folder.file("a.txt", "ab\ncd\n"));
  o.documents = "line";
  o.valid = {folder.file("v.txt", "xyzw")};
  o.test = {"0"};
  o.T = 3;
  o.sampling = "epoch";
  const ByteTask task(o);
  EXPECT_EQ(task.shape().vocabulary, 257);
  EXPECT_EQ(task.sources().size(), 2u);
  // | a b | c d |: six targets, two windows
  EXPECT_EQ(task.size(Split::train), 2);
  Batch batch = task.batch(Split::train, {0, 1});
  EXPECT_EQ(numbers(batch.tokens), (std::vector<int64_t>{256, 'a', 'b', 256, 'c', 'd'}));
  EXPECT_EQ(numbers(batch.targets), (std::vector<int64_t>{'a', 'b', 256, 'c', 'd', 256}));
  EXPECT_EQ(batch.bytes, 4);
  // | x y z w |: five targets; the second window reaches back and scores two
  EXPECT_EQ(task.size(Split::valid), 2);
  EXPECT_EQ(task.size(Split::test), 2);
  batch = task.batch(Split::valid, {1});
  EXPECT_EQ(numbers(batch.tokens), (std::vector<int64_t>{'y', 'z', 'w'}));
  EXPECT_EQ(numbers(batch.targets), (std::vector<int64_t>{kNoTarget, 'w', 256}));
  EXPECT_EQ(batch.bytes, 1);
  EXPECT_THROW(task.batch(Split::valid, {2}), UsageError);

  o.packing = "doc";
  const Batch packed = ByteTask(o).batch(Split::train, {0, 1});
  EXPECT_EQ(packed.tokens.sizes(), at::IntArrayRef({1, 6}));
  EXPECT_EQ(numbers(packed.cu_seqlens), (std::vector<int64_t>{0, 3, 6}));
}

TEST(Text, BaselinesNameTheSizeOfTheText) {
  const Folder folder;
  ByteTaskOptions o = options_for(folder.file("a.txt", std::string(3 * 1024, 'a')));
  o.valid = o.test = {folder.file("v.txt", "aaaa")};
  o.T = 3;
  EXPECT_EQ(
      ByteTask(o).baselines()[1].meaning,
      "Witten-Bell n-gram of 0 bytes of context, counted on 3 KiB of the training text"
  );
}

// Whatever the windows, every token of validation is scored once.
TEST(Text, EveryTokenIsScoredOnce) {
  ByteTaskOptions o = options_for("grammar");
  for (const int64_t T : {1, 7, 64, 1000}) {
    o.T = T;
    const ByteTask task(o);
    int64_t counted = 0;
    double bytes = 0;
    for (int64_t i = 0; i < task.size(Split::valid); ++i) {
      const Batch batch = task.batch(Split::valid, {i});
      counted += (batch.targets != kNoTarget).sum().item<int64_t>();
      bytes += batch.bytes;
    }
    const auto& splits = task.corpus().splits;
    EXPECT_EQ(counted, splits.streams[1].size() - 1);
    EXPECT_EQ(bytes, splits.bytes[1]);
    if (T == 1) o.valid = {"0.01"};
  }
}

TEST(Text, ManyDocumentsAreSplitWhole) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("line {:03}\n", i);
  ByteTaskOptions o = options_for(folder.file("lines.txt", lines));
  o.documents = "line";
  o.T = 4;
  std::set<std::string> seen;
  const ByteTask task(o);
  for (const TokenStream& stream : task.corpus().splits.streams) {
    std::string text;
    for (int64_t i = 0; i < stream.size(); ++i) text += stream[i] == 256 ? '\n' : char(stream[i]);
    for (const std::string& line : cut_documents(text, "line")) {
      EXPECT_EQ(line.size(), 8u);
      EXPECT_TRUE(seen.insert(line).second);
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(task.corpus().splits.bytes[1], 400);
}

TEST(Text, TokensAreKeptInAFile) {
  const Folder folder;
  std::string text;
  while (text.size() < (5u << 20)) text += fmt::format("{} ", text.size() * 2654435761u);
  ByteTaskOptions o = options_for(folder.file("large.txt", text));
  o.cache = folder.path + "/cache";
  const auto first = ByteTask(o).batch(Split::train, {5});
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(o.cache), {}), 1);
  const std::string path = std::filesystem::directory_iterator(o.cache)->path();
  EXPECT_LT(std::filesystem::file_size(path), 2 * text.size() + 150);
  const auto second = ByteTask(o).batch(Split::train, {5});
  EXPECT_TRUE(at::equal(first.tokens, second.tokens));
  const std::string whole = read_file(path);
  for (const size_t place : {size_t(9), whole.size() / 2, whole.size() - 5, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[place] ^= 1;
    if (place + 1 == whole.size()) damaged.pop_back();
    write_file(path, damaged);
    EXPECT_THROW(read_tokens(path), DataError) << place;
    EXPECT_TRUE(at::equal(first.tokens, ByteTask(o).batch(Split::train, {5}).tokens));
    EXPECT_EQ(read_file(path), whole);  // it was made again
  }
  o.seed = 7;  // other windows, other file
  EXPECT_FALSE(at::equal(first.tokens, ByteTask(o).batch(Split::train, {5}).tokens));
}

TEST(Text, FilesOfTokens) {
  const Folder folder;
  const auto bytes = [](const auto& numbers) {
    return std::string_view(
        reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]
    );
  };
  std::vector<uint16_t> narrow;
  for (uint16_t i = 0; i < 100; ++i) narrow.push_back(i);
  std::vector<int32_t> wide(256);
  wide[0] = 20240801;
  wide[1] = 7;
  wide[2] = 50;
  for (int32_t i = 0; i < 50; ++i) wide.push_back(200 + i);
  BpeTaskOptions o;
  o.T = 4;
  o.data = {folder.file("train.bin", bytes(narrow))};
  o.valid = {folder.file("val.bin", bytes(wide))};
  o.test = {"0.1"};
  const BpeTask task(o);
  const auto& streams = task.corpus().splits.streams;
  EXPECT_EQ(streams[0].size(), 90);
  EXPECT_EQ(streams[1].size(), 50);
  EXPECT_EQ(streams[2].size(), 10);
  EXPECT_EQ(streams[1][49], 249);
  EXPECT_EQ(streams[2][0], 90);
  EXPECT_EQ(task.batch(Split::valid, {0}).bytes, 4);
  o.valid = {folder.file("cut.bin", bytes(wide).substr(0, 1100))};
  EXPECT_THROW(BpeTask{o}, DataError);
  wide[260] = 257;  // no such byte
  o.valid = {folder.file("large.bin", bytes(wide))};
  EXPECT_THROW(BpeTask{o}, DataError);
}

TEST(Text, Shakespeare) {
  const std::string path = test_data("tinyshakespeare/input.txt");
  HORNER_NEED(path);
  ByteTaskOptions o = options_for(path);
  o.characters = true;
  o.valid = {"0.1"};
  o.test = {"0"};
  const ByteTask task(o);
  EXPECT_EQ(task.shape().vocabulary, 65);
  EXPECT_EQ(task.metric(), "loss");
  EXPECT_EQ(task.corpus().splits.streams[0].size(), 1003854);
  EXPECT_EQ(task.corpus().splits.streams[1].size(), 111540);
  EXPECT_EQ(task.corpus().tokenizer.bytes(0), "\n");
  EXPECT_EQ(task.sources()[0]["bytes"], 1115394);
}

TEST(Text, WikitextWords) {
  HORNER_NEED(test_data("wikitext-2"));
  const auto words = [](const char* name) {
    return wikitext_words(read_decompressed(test_data(fmt::format("wikitext-2/{}.txt.xz", name))));
  };
  EXPECT_EQ(words("valid"), 217646);
  EXPECT_EQ(words("test"), 245569);
}

TEST(Text, BpeCountsTheBytesOfTheText) {
  for (const char* name : {"tokenizers/gpt2", "tinystories656k"}) {
    HORNER_NEED(test_data(name));
    BpeTaskOptions o;
    o.data = {"grammar"};
    o.T = 64;
    o.tokenizer = test_data(name);
    const BpeTask task(o);
    double bytes = 0;
    for (int64_t i = 0; i < task.size(Split::valid); ++i) {
      bytes += task.batch(Split::valid, {i}).bytes;
    }
    EXPECT_NEAR(bytes, task.corpus().splits.bytes[1], 1e-6 * bytes) << name;
    EXPECT_EQ(task.shape().vocabulary, task.corpus().tokenizer.vocabulary());
  }
}

TEST(Text, FindsWhatIsThere) {
  const Folder folder;
  folder.file("b.txt", "text");
  folder.file("a.md", "text");
  folder.file("binary", std::string_view("\0\1", 2));
  folder.file(".hidden", "text");
  const TextFiles found = find_text({folder.path});
  ASSERT_EQ(found.files.size(), 2u);
  EXPECT_EQ(found.files[0].path, folder.path + "/a.md");
  EXPECT_EQ(found.files[0].hash.size(), 32u);
  EXPECT_TRUE(find_text({"grammar"}).grammar);
  EXPECT_THROW(find_text({folder.path + "/none"}), DataError);
  EXPECT_FALSE(find_text({}).json().empty());
}

TEST(Ngram, ClosedForms) {
  // Unigram: P = (c + 2/256) / (8 + 2) for both letters.
  const double p = (4 + 2.0 / 256) / 10;
  EXPECT_NEAR(ngram_bits("abababab", "ab", 0)[0], -std::log2(p), 1e-12);
  EXPECT_NEAR(ngram_bits("", "ab", 2)[2], 8, 1e-12);
  EXPECT_LT(ngram_bits(std::string(1000, 'a'), "aaaa", 1)[1], 0.02);
}

TEST(LabelledText, Csv) {
  const auto rows = parse_csv("a,\"b,\"\"c\"\"\nd\"\r\ne,", ',', true, "f");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"a", "b,\"c\"\nd"}));
  EXPECT_EQ(rows[1], (std::vector<std::string>{"e", ""}));
  EXPECT_THROW(parse_csv("\"a", ',', true, "f"), DataError);
}

TEST(LabelledText, BookId) {
  const Folder folder;
  for (const char letter : {'a', 'b', 'c'}) {
    folder.file(std::string(1, letter), std::string(1000 - size_t(letter - 'a'), letter));
  }
  BookIdOptions o;
  o.data = {folder.path};
  o.books = 2;
  o.T = 50;
  const BookId task(o);
  EXPECT_EQ(task.size(Split::train), 31);
  EXPECT_EQ(task.size(Split::valid), 4);
  EXPECT_EQ(task.baselines()[1].score, 1);  // one letter tells the books apart
  const Batch batch = task.batch(Split::test, {0});
  EXPECT_EQ(batch.tokens[0][0].item<int64_t>(), 'a' + 1);
  EXPECT_EQ(batch.lengths[0].item<int64_t>(), 50);
  o.books = 4;
  EXPECT_THROW(BookId{o}, DataError);
}

TEST(LabelledText, PublishedSizes) {
  HORNER_NEED(test_data("text_classification"));
  struct Case {
    const char *set, *folder;
    int64_t classes, train, valid, test;
    double majority, trigrams;  // the latter at least
  };
  for (const Case& c :
       {Case{"clinc150", "clinc150", 150, 15000, 3000, 4500, 1.0 / 150, 0.7},
        Case{"banking77", "banking77", 77, 9003, 1000, 3080, 0.013, 0.6},
        Case{"sst2", "sst2_glue", 2, 67349, 872, 1821, 0.499, 0.7},
        Case{"cola", "cola", 2, 8551, 527, 516, 0.69, 0.55}}) {
    ClassifyTextOptions o;
    o.set = c.set;
    o.data = test_data(fmt::format("text_classification/{}", c.folder));
    const ClassifyText task(o);
    EXPECT_EQ(task.shape().classes, c.classes) << c.set;
    EXPECT_EQ(task.size(Split::train), c.train) << c.set;
    EXPECT_EQ(task.size(Split::valid), c.valid) << c.set;
    EXPECT_EQ(task.size(Split::test), c.test) << c.set;
    const auto baselines = task.baselines();
    EXPECT_NEAR(baselines[0].score, c.majority, 0.01) << c.set;
    EXPECT_GT(baselines[2].score, c.trigrams) << c.set;
  }
}

// Interpolated Witten-Bell on Shakespeare's last tenth, orders 0, 2, 4, 5.
TEST(NgramSlow, Shakespeare) {
  const std::string path = test_data("tinyshakespeare/input.txt");
  HORNER_NEED(path);
  const std::string text = read_file(path);
  const std::string_view all = text;
  const auto bits = ngram_bits(all.substr(0, 1003854), all.substr(1003854), 5);
  EXPECT_NEAR(bits[0], 4.829, 0.001);
  EXPECT_NEAR(bits[2], 2.956, 0.001);
  EXPECT_NEAR(bits[4], 2.408, 0.001);
  EXPECT_NEAR(bits[5], 2.450, 0.001);
}

TEST(NgramSlow, Wikitext) {
  HORNER_NEED(test_data("wikitext-2"));
  const auto text = [](const char* name) {
    return read_decompressed(test_data(fmt::format("wikitext-2/{}.txt.xz", name)));
  };
  const auto bits = ngram_bits(text("train_shuffled"), text("valid"), 4);
  EXPECT_NEAR(bits[0], 4.621, 0.001);
  EXPECT_NEAR(bits[2], 2.718, 0.001);
  EXPECT_NEAR(bits[4], 1.848, 0.002);
}

TEST(LabelledTextSlow, Imdb) {
  HORNER_NEED(test_data("imdb"));
  BytesTextOptions o;
  o.data = test_data("imdb");
  const BytesText task(o);
  EXPECT_EQ(task.size(Split::train), 22500);
  EXPECT_EQ(task.size(Split::valid), 2500);
  EXPECT_EQ(task.size(Split::test), 25000);
  EXPECT_EQ(task.shape().vocabulary, 257);
  const auto baselines = task.baselines();
  EXPECT_NEAR(baselines[0].score, 0.5, 0.001);
  EXPECT_NEAR(baselines[1].score, 0.601, 0.015);
  EXPECT_NEAR(baselines[2].score, 0.766, 0.03);
}

}  // namespace
}  // namespace horner
