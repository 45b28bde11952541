#include "io/safetensors_header.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

std::string file_of(const std::string& header, size_t data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data, '\0');
}

std::string error_of(const std::string& file) {
  try {
    parse_safetensors(file, "f");
  } catch (const DataError& error) {
    EXPECT_EQ(error.exit_code, 3);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& header, size_t data) {
  return error_of(file_of(header, data));
}

constexpr char kGood[] = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

TEST(SafetensorsHeader, ReadsInOrderOfData) {
  const SafetensorsHeader header = parse_safetensors(
      file_of(
          R"({"a":{"dtype":"F16","shape":[],"data_offsets":[4,6]},"__metadata__":{"k":"v"},)"
          R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":[1]},)"
          R"("c":{"dtype":"U8","shape":[3,0],"data_offsets":[6,6]}}   )",
          6
      ),
      "f"
  );
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "b");
  EXPECT_EQ(header.tensors[1].name, "a");
  EXPECT_EQ(header.tensors[1].dtype->name, "F16");
  EXPECT_EQ(header.tensors[1].begin, 4u);
  EXPECT_EQ(header.tensors[2].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(header.metadata.at("k"), "v");
  EXPECT_EQ(error_of("{}", 0), "no error");
  EXPECT_EQ(error_of(R"({"__metadata__":null})", 0), "no error");
}

TEST(SafetensorsHeader, EveryShorterFileIsRefused) {
  const std::string file = file_of(kGood, 24);
  EXPECT_EQ(error_of(file), "no error");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(error_of(file.substr(0, size)), "no error") << size;
  }
  EXPECT_EQ(error_of(file + '\0'), "f: tensors hold 24 bytes, the file has 25 for them");
  EXPECT_EQ(
      error_of(file.substr(0, file.size() - 1)),
      "f: tensors hold 24 bytes, the file has 23 for them"
  );
}

TEST(SafetensorsHeader, Length) {
  EXPECT_EQ(error_of(""), "f: not a safetensors file: only 0 bytes long");
  EXPECT_EQ(
      error_of(std::string(8, '\xff')),
      "f: not a safetensors file: header of 18446744073709551615 bytes"
  );
  EXPECT_EQ(
      error_of(std::string("\1\0\0\0\0\0\0\0", 8)), "f: cut short: header of 1 bytes in a file of 8"
  );
  EXPECT_EQ(error_of("", 0), "f: not a safetensors file: header does not begin with {");
}

TEST(SafetensorsHeader, Json) {
  EXPECT_EQ(error_of("[]", 0), "f: not a safetensors file: header does not begin with {");
  EXPECT_EQ(error_of("\xef\xbb\xbf{}", 0).substr(0, 21), "f: not a safetensors ");
  EXPECT_EQ(error_of("{", 0).substr(0, 32), "f: header is not JSON: parse err");
  EXPECT_EQ(error_of("{} x", 0).substr(0, 32), "f: header is not JSON: parse err");
  EXPECT_EQ(error_of("{\"\xff\":1}", 0).substr(0, 32), "f: header is not JSON: parse err");
  EXPECT_LT(error_of("{\"" + std::string(100000, 'x'), 0).size(), 300u);
  EXPECT_EQ(error_of(R"({"a":{},"a":{}})", 0), "f: header has the key \"a\" twice");
  EXPECT_EQ(
      error_of(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0), "f: header has the key \"dtype\" twice"
  );
  const std::string deep = R"({"a":)" + std::string(10'000'000, '[');
  EXPECT_EQ(error_of(deep, 0), "f: header is nested deeper than 3");
  EXPECT_EQ(error_of(R"({"a":{"b":{"c":{}}}})", 0), "f: header is nested deeper than 3");
}

// A minute when the end of each entry walked over all entries before it.
TEST(SafetensorsHeader, ManyNamesTakeLinearTime) {
  std::string json;
  for (int64_t i = 0; i < 80'000; ++i)
    json += fmt::format(
        R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i ? "," : "{", i, i, i + 1
    );
  EXPECT_EQ(error_of(json + "}", 80'000), "no error");
}

TEST(SafetensorsHeader, Tensor) {
  const auto error = [](const std::string& info) { return error_of("{\"a\":" + info + "}", 8); };
  const std::string integers = " must be a list of integers from 0";
  EXPECT_EQ(error("3"), "f: \"a\" must be an object");
  EXPECT_EQ(error("{}"), "f: \"a\" has no dtype");
  EXPECT_EQ(error(R"({"dtype":3})"), "f: \"a\" dtype must be a string");
  EXPECT_EQ(error(R"({"dtype":"F4\n"})"), "f: \"a\" dtype \"F4\\n\" is not supported");
  EXPECT_EQ(error(R"({"dtype":"F32"})"), "f: \"a\" has no shape");
  EXPECT_EQ(error(R"({"dtype":"F32","shape":2})"), "f: \"a\" shape" + integers);
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[-1]})"), "f: \"a\" shape" + integers);
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[1.0]})"), "f: \"a\" shape" + integers);
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[9223372036854775808]})"), "f: \"a\" shape" + integers);
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[2]})"), "f: \"a\" has no data_offsets");

  const auto place = [&](const std::string& shape, const std::string& offsets) {
    return error(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}");
  };
  EXPECT_EQ(place("[2]", "[0,8]"), "no error");
  EXPECT_EQ(place("[2]", "[0]"), "f: \"a\" data_offsets must be [begin, end]");
  EXPECT_EQ(place("[2]", "[8,0]"), "f: \"a\" data_offsets must be [begin, end]");
  EXPECT_EQ(place("[2]", "[0,-8]"), "f: \"a\" data_offsets" + integers);
  EXPECT_EQ(place("[3]", "[0,8]"), "f: \"a\" data_offsets hold 8 bytes, its shape 12");
  EXPECT_EQ(place("[4294967296,4294967296]", "[0,8]"), "f: \"a\" shape overflows 64 bits");
  EXPECT_EQ(place("[0,4294967296,4294967296]", "[0,0]"), "f: \"a\" shape overflows 64 bits");
}

TEST(SafetensorsHeader, Layout) {
  const auto pair = [](const std::string& a, const std::string& b) {
    const std::string info = R"({"dtype":"F32","shape":[1],"data_offsets":)";
    return error_of("{\"a\":" + info + a + "},\"b\":" + info + b + "}}", 8);
  };
  EXPECT_EQ(pair("[4,8]", "[0,4]"), "no error");
  EXPECT_EQ(
      pair("[0,4]", "[2,6]"),
      "f: \"b\" begins at byte 2 of the data, the tensor before it ends at 4"
  );
  EXPECT_EQ(
      pair("[0,4]", "[5,9]"),
      "f: \"b\" begins at byte 5 of the data, the tensor before it ends at 4"
  );
  EXPECT_EQ(
      pair("[1,5]", "[5,9]"),
      "f: \"a\" begins at byte 1 of the data, the tensor before it ends at 0"
  );
  EXPECT_EQ(pair("[0,4]", "[0,4]").substr(0, 23), "f: \"b\" begins at byte 0");
}

TEST(SafetensorsHeader, Metadata) {
  EXPECT_EQ(
      error_of(R"({"__metadata__":3})", 0), "f: \"__metadata__\" must be an object of strings"
  );
  EXPECT_EQ(
      error_of(R"({"__metadata__":{"a":3}})", 0), "f: \"__metadata__\" must be an object of strings"
  );
}

TEST(SafetensorsHeader, WritesWhatTheReferenceWrites) {
  SafetensorsHeader header;
  header.tensors = {
      {"b", find_dtype("U8"), {3}, 0, 0},
      {"c", find_dtype("F64"), {}, 0, 0},
      {"a", find_dtype("U8"), {0}, 0, 0}};
  const std::string text = format_safetensors(header);
  EXPECT_EQ(header.data_begin, text.size());
  EXPECT_EQ(text.size() % 8, 0u);
  EXPECT_EQ(
      text.substr(8, text.find_last_not_of(' ') - 7),
      R"({"c":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[8,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})"
  );
}

}  // namespace
}  // namespace horner
