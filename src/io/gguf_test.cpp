#include "io/gguf.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/check.h"
#include "core/thrown_test.h"
#include "io/safetensors.h"

namespace horner {
namespace {

constexpr char kBlocks[] = "src/io/goldens/blocks.gguf";  // by tools/gguf_goldens.py

std::string error_of(std::string_view file) {
  return thrown<DataError>([&] { parse_gguf(file, "f"); });
}

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text_of(std::string_view text) {
  return bytes_of<uint64_t>(text.size()) + std::string(text);
}
std::string begin_of(uint64_t tensors, uint64_t pairs) {
  return "GGUF" + bytes_of<uint32_t>(3) + bytes_of(tensors) + bytes_of(pairs);
}
std::string tensor_of(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  std::string text = text_of("x") + bytes_of<uint32_t>(uint32_t(dims.size()));
  for (const uint64_t size : dims) text += bytes_of(size);
  return text + bytes_of(type) + bytes_of(offset);
}

TEST(Gguf, ValuesHaveTheBitsOfThePackage) {
  const Gguf file = Gguf::open(kBlocks);
  const Safetensors values = Safetensors::open("src/io/goldens/blocks.safetensors");
  EXPECT_EQ(file.header().tensors.size(), 11u);
  for (const GgufTensor& tensor : file.header().tensors) {
    const at::Tensor wanted = values.get(tensor.name);  // (3,256)
    const at::Tensor got = file.get(tensor.name).to(at::kFloat);
    ASSERT_EQ(got.sizes(), wanted.sizes()) << tensor.name;
    EXPECT_EQ(std::memcmp(got.data_ptr(), wanted.data_ptr(), wanted.nbytes()), 0) << tensor.name;
    const at::Tensor row = file.rows(tensor, 1, 2);
    EXPECT_TRUE(at::equal(row, wanted.narrow(0, 1, 1))) << tensor.name;
  }
}

TEST(Gguf, HalvesAreThoseOfTorch) {
  for (uint32_t half = 0; half < 1 << 16; ++half) {
    const float got = half_to_float(uint16_t(half));
    const float wanted = c10::Half(uint16_t(half), c10::Half::from_bits());
    if (wanted == wanted) {
      EXPECT_EQ(std::memcmp(&got, &wanted, 4), 0) << half;
    } else {
      EXPECT_NE(got, got) << half;
    }
  }
}

TEST(Gguf, ReadsMetadata) {
  const Gguf file = Gguf::open(kBlocks);
  const GgufHeader& header = file.header();
  EXPECT_EQ(header.version, 3u);
  EXPECT_EQ(header.text("general.architecture"), "test");
  EXPECT_EQ(header.text("test.string"), "naïve");
  for (const auto& [kind, value] :
       {std::pair{"uint8", 200L},
        {"int8", -100L},
        {"uint16", 60000L},
        {"int16", -30000L},
        {"uint32", 4000000000L},
        {"int32", -2000000000L},
        {"int64", -(1L << 62)}}) {
    EXPECT_EQ(header.integer(fmt::format("test.{}", kind)), value);
    EXPECT_EQ(header.number(fmt::format("test.{}", kind)), double(value));
  }
  EXPECT_EQ(header.number("test.uint64"), 0x1p63);
  EXPECT_EQ(header.number("test.float32"), 0.5);
  EXPECT_EQ(header.number("test.float64"), 1e300);
  EXPECT_EQ(header.flag("test.bool"), true);
  EXPECT_EQ(header.numbers("test.ints"), (std::vector<double>{3, 1, 2}));
  EXPECT_EQ(header.texts("test.strs"), (std::vector<std::string>{"a", "", "bc"}));
  EXPECT_FALSE(header.text("nothing").has_value());
  EXPECT_TRUE(header.texts("nothing").empty());
  EXPECT_EQ(
      thrown<DataError>([&] { header.integer("test.uint64"); }),
      std::string(kBlocks) + ": test.uint64 must be an integer of 63 bits"
  );
  EXPECT_EQ(
      thrown<DataError>([&] { header.text("test.ints"); }),
      std::string(kBlocks) + ": test.ints must be a string"
  );
}

// Resident bytes of the mappings of a file.
int64_t resident(const std::string& name) {
  std::ifstream maps("/proc/self/smaps");
  int64_t sum = 0;
  bool own = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("-") < line.find(":")) own = line.ends_with(name);  // the first line of a mapping
    if (own && line.starts_with("Rss:")) sum += std::stoll(line.substr(4)) * 1024;
  }
  return sum;
}

TEST(Gguf, AForgottenTensorIsReadAgain) {
  const std::string path = "src/model/formats/goldens/gpt2.gguf";
  const Gguf file = Gguf::open(path);
  std::map<std::string, at::Tensor> values;
  for (const GgufTensor& tensor : file.header().tensors)
    values[tensor.name] = file.get(tensor.name).clone();
  const int64_t before = resident("gpt2.gguf");
  EXPECT_GE(before, 60'000);
  for (const GgufTensor& tensor : file.header().tensors) file.forget(tensor);
  EXPECT_LT(resident("gpt2.gguf"), before);
  for (const auto& [name, wanted] : values) EXPECT_TRUE(at::equal(file.get(name), wanted)) << name;
}

TEST(Gguf, EveryShorterFileIsRefused) {
  const std::string file = read_file(kBlocks);
  EXPECT_EQ(error_of(file), "nothing");
  // The last tensor ends with the file.
  for (size_t size = 0; size < file.size(); size += size < 1100 ? 1 : 97)
    EXPECT_NE(error_of(file.substr(0, size)), "nothing") << size;
  EXPECT_NE(error_of(file.substr(0, file.size() - 32)), "nothing");
}

TEST(Gguf, SizesThatLieAllocateNothing) {
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_EQ(
      error_of(begin_of(huge, 0)), "f: cut short: name of a tensor of 8 bytes at byte 24 of 24"
  );
  EXPECT_EQ(error_of(begin_of(0, huge)), "f: cut short: key of 8 bytes at byte 24 of 24");
  EXPECT_EQ(
      error_of(begin_of(0, 1) + bytes_of(huge)),
      "f: cut short: key of 4611686018427387904 bytes at byte 32 of 32"
  );
  const std::string key = begin_of(0, 1) + text_of("k");
  const auto array = [&](uint32_t kind) {
    return key + bytes_of<uint32_t>(9) + bytes_of(kind) + bytes_of(huge);
  };
  EXPECT_EQ(error_of(array(6)), "f: cut short: \"k\" has 4611686018427387904 values");
  EXPECT_EQ(error_of(array(8)), "f: cut short: string of 8 bytes at byte 49 of 49");
  EXPECT_EQ(error_of(array(9)), "f: \"k\" is an array of arrays, which is not read");
  EXPECT_EQ(error_of(array(13)), "f: \"k\" has a value of type 13, which does not exist");
  EXPECT_EQ(
      error_of(begin_of(1, 0) + tensor_of({uint64_t{1} << 40, 1 << 20}, 0, 0)),
      "f: tensor \"x\" has dimension 1 = 1048576"
  );
}

TEST(Gguf, WrongTensorsAreRefused) {
  const auto error = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return error_of(begin_of(1, 0) + tensor_of(dims, type, offset) + std::string(64, '\0'));
  };
  EXPECT_EQ(error({4, 2}, 0, 0), "nothing");
  EXPECT_EQ(
      error({4, 2}, 0, 33),
      "f: tensor \"x\" has 32 bytes at offset 33 of data of 33 bytes, aligned to 32"
  );
  EXPECT_EQ(
      error({4, 2}, 0, 32),
      "f: tensor \"x\" has 32 bytes at offset 32 of data of 33 bytes, aligned to 32"
  );
  EXPECT_EQ(error({16}, 2, 0), "f: tensor \"x\" has rows of 16 weights, Q4_0 has blocks of 32");
  EXPECT_EQ(error({0}, 0, 0), "f: tensor \"x\" has dimension 0 = 0");
  EXPECT_EQ(error({}, 0, 0), "f: tensor \"x\" has 0 dimensions, 1 to 4 are known");
  EXPECT_EQ(
      error({256}, 10, 0),
      "f: tensor \"x\" has type 10, which is not read; known: F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
      "Q5_1, Q8_0, Q4_K, Q5_K, Q6_K"
  );
  const std::string twice = tensor_of({4}, 0, 0) + tensor_of({4}, 0, 0);
  EXPECT_EQ(error_of(begin_of(2, 0) + twice + std::string(64, 'x')), "f: has tensor \"x\" twice");
  EXPECT_EQ(error_of("GGML"), "f: not a GGUF file: it does not begin with GGUF");
  EXPECT_EQ(error_of("GGUF" + bytes_of<uint32_t>(1)), "f: GGUF version 1 is not read, 2 and 3 are");
  EXPECT_EQ(
      error_of("GGUF" + bytes_of<uint32_t>(3 << 24)),
      "f: its numbers are big-endian, which is not read"
  );
}

TEST(Gguf, UnknownTensorSuggestsTheNearest) {
  const Gguf file = Gguf::open(kBlocks);
  EXPECT_EQ(
      thrown<DataError>([&] { file.get("Q4_2"); }),
      std::string(kBlocks) + ": unknown tensor 'Q4_2'; did you mean 'Q4_0'?"
  );
}

}  // namespace
}  // namespace horner
