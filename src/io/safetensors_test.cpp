#include "io/safetensors.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/check.h"
#include "core/data_test.h"
#include "core/json.h"

namespace horner {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

std::string temporary(const char* name) { return testing::TempDir() + name; }

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

template <class F>
std::string message(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

at::Tensor random_bits(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  if (dtype == at::kBool) return at::randint(2, shape).to(at::kBool);
  std::vector<int64_t> bytes = shape;
  bytes.push_back(static_cast<int64_t>(c10::elementSize(dtype)));
  return at::randint(256, bytes, at::kByte).view(dtype).view(shape);
}

constexpr at::ScalarType kTypes[] = {
    at::kDouble,
    at::kFloat,
    at::kHalf,
    at::kBFloat16,
    at::kLong,
    at::kInt,
    at::kShort,
    at::kChar,
    at::kByte,
    at::kBool,
    at::kComplexFloat,
    at::kUInt16,
    at::kUInt32,
    at::kUInt64,
    at::kFloat8_e4m3fn,
    at::kFloat8_e5m2};

RC_GTEST_PROP(Safetensors, RoundTrips, (std::vector<uint8_t> picks)) {
  const std::string path = temporary("round_trip.safetensors");
  Tensors tensors;
  for (uint8_t pick : picks) {
    const auto shape = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5));
    const std::vector<int64_t> few(
        shape.begin(), shape.begin() + std::min<size_t>(shape.size(), 4)
    );
    const at::ScalarType dtype = kTypes[pick % std::size(kTypes)];
    tensors.emplace_back(fmt::format("t{}\n{}", tensors.size(), pick), random_bits(few, dtype));
  }
  write_safetensors(path, tensors, {{"žluť", "\"quoted\"\n"}});
  const Safetensors file = Safetensors::open(path);
  RC_ASSERT(file.names().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) RC_ASSERT(same_bits(file.get(name), tensor));
  RC_ASSERT(file.metadata().at("žluť") == "\"quoted\"\n");
  RC_ASSERT(file.metadata().at("format") == "pt");
}

TEST(Safetensors, StridesAndOrderDoNotMatter) {
  const at::Tensor a = at::randn({3, 4}).t(),
                   b = at::complex(at::randn({5}), at::randn({5})).conj();
  write_safetensors(temporary("ab.safetensors"), {{"a", a}, {"b", b}});
  write_safetensors(temporary("ba.safetensors"), {{"b", b.resolve_conj()}, {"a", a.contiguous()}});
  EXPECT_EQ(read_file(temporary("ab.safetensors")), read_file(temporary("ba.safetensors")));
  EXPECT_TRUE(at::equal(Safetensors::open(temporary("ab.safetensors")).get("b"), b));
}

TEST(Safetensors, ViewsOutliveTheFile) {
  const std::string path = temporary("view.safetensors");
  write_safetensors(path, {{"a", at::ones({1000})}});
  at::Tensor view = Safetensors::open(path).get("a");
  view.add_(1);  // private to this process
  EXPECT_EQ(Safetensors::open(path).get("a").sum().item<double>(), 1000);
  std::filesystem::remove(path);
  EXPECT_EQ(view.sum().item<double>(), 2000);
}

std::string file_of(std::string header, const std::string& data) {
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  return length + header + data;
}

TEST(Safetensors, UnalignedDataIsCopied) {
  const std::string path = temporary("unaligned.safetensors");
  const float value = 1.5;
  std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
  std::string header = R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  write_file(path, file_of(header, "\x07" + bytes));
  const at::Tensor f = Safetensors::open(path).get("f");
  EXPECT_EQ(f.item<float>(), 1.5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f.data_ptr()) % sizeof(float), 0u);
}

TEST(Safetensors, FileMistakes) {
  const std::string path = temporary("mistake.safetensors");
  const auto open = [&] { return Safetensors::open(path); };
  std::filesystem::remove(path);
  EXPECT_EQ(message(open), path + ": cannot be opened: No such file or directory");
  write_file(path, "");
  EXPECT_EQ(message(open), path + ": not a safetensors file: only 0 bytes long");
  EXPECT_EQ(
      message([] { Safetensors::open(testing::TempDir()); }), testing::TempDir() + ": is not a file"
  );
  write_file(
      path, file_of(R"({"flag":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\x02")
  );
  EXPECT_EQ(
      message([&] { open().get("flag"); }),
      path + ": tensor 'flag' is BOOL and has bytes other than 0 and 1"
  );
  EXPECT_EQ(
      message([&] { open().get("flg"); }), path + ": unknown tensor 'flg'; did you mean 'flag'?"
  );
}

TEST(Safetensors, WriterMistakesLeaveTheOldFile) {
  const std::string path = temporary("old.safetensors");
  const at::Tensor one = at::ones({1});
  write_safetensors(path, {{"a", one}});
  const auto error = [&](const Tensors& tensors) {
    return message([&] { write_safetensors(path, tensors); });
  };
  const std::string named = " cannot name a tensor: it is reserved, used twice or not UTF-8";
  EXPECT_EQ(error({{"x", one}, {"x", one}}), "\"x\"" + named);
  EXPECT_EQ(error({{"__metadata__", one}}), "\"__metadata__\"" + named);
  EXPECT_EQ(error({{"\xff", one}}), "\"\uFFFD\"" + named);
  EXPECT_EQ(error({{"x", {}}}), path + ": tensor 'x' is undefined");
  EXPECT_EQ(
      error({{"x", one.to(at::kComplexDouble)}}),
      path + ": tensor 'x' cannot be stored: CPUComplexDoubleType"
  );
  EXPECT_EQ(
      message([&] {
        write_safetensors(path, {}, {{"k", "\xff"}});
      }),
      "metadata must be UTF-8, got \"k\""
  );
  EXPECT_EQ(
      message([&] { write_safetensors(path + "/no/such", {}); }),
      path + "/no/such: cannot be written: Not a directory"
  );
  EXPECT_EQ(Safetensors::open(path).names(), std::vector<std::string>{"a"});
  for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
    EXPECT_EQ(entry.path().string().find("old.safetensors."), std::string::npos) << entry.path();
  }
}

struct Model {
  const char* folder;
  const char* embedding;
  std::vector<int64_t> shape;
};

class SafetensorsModel : public testing::TestWithParam<Model> {};

TEST_P(SafetensorsModel, IsReadAndWritten) {
  const auto& [folder, name_of_embedding, shape] = GetParam();
  const std::string path = test_data(fmt::format("{}/model.safetensors", folder));
  HORNER_NEED(path);
  const Safetensors model = Safetensors::open(path);
  const at::Tensor embedding = model.get(name_of_embedding);
  EXPECT_EQ(embedding.sizes(), shape);
  EXPECT_TRUE(at::isfinite(embedding).all().item<bool>());

  const std::string copy = temporary("copy.safetensors");
  Tensors tensors;
  for (const std::string& name : model.names()) tensors.emplace_back(name, model.get(name));
  write_safetensors(copy, tensors, model.metadata());
  const Safetensors again = Safetensors::open(copy);
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(same_bits(again.get(name), tensor)) << name;
  if (model.metadata().count("format")) {  // which the writer adds
    EXPECT_EQ(read_file(copy), read_file(path));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Real,
    SafetensorsModel,
    testing::Values(
        Model{"tinystories656k", "lm_head.weight", {2048, 128}},
        Model{"rxnmapper_albert", "albert.embeddings.word_embeddings.weight", {591, 128}}
    )
);

// Reads one file and writes what it read to another. python/tests/test_safetensors.py names the files.
TEST(SafetensorsExchange, CopiesAFile) {
  const char* given = std::getenv("HORNER_SAFETENSORS_IN");
  const char* wanted = std::getenv("HORNER_SAFETENSORS_OUT");
  const Safetensors file = Safetensors::open(given ? given : "src/io/goldens/blocks.safetensors");
  Tensors tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.get(name).clone());
  ASSERT_FALSE(given == nullptr && tensors.empty());
  const std::string copy = wanted ? wanted : temporary("exchange.safetensors");
  write_safetensors(copy, tensors, file.metadata());
  const Safetensors again = Safetensors::open(copy);
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(same_bits(again.get(name), tensor)) << name;
}

}  // namespace
}  // namespace horner
