#include "core/options.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/file.h"

namespace horner {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Position {
  std::string kind = "none";
  double base = 10000;
  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("kind", kind, "how a token knows its place", {"none", "rope"});
    visit("base", base, "longest wave length");
  }
};

struct Example {
  bool causal = true;
  int64_t order = 2;
  double eps = 1e-5;
  std::string form = "auto";
  std::string note;
  std::optional<double> scale;
  std::optional<int64_t> window = 64;
  std::vector<double> coefficients;
  std::vector<int64_t> widths = {1, 2};
  std::vector<std::string> pattern;
  Position position;
  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("causal", causal, "only the past is read");
    visit("order", order, "highest power of q.k that is kept");
    visit("eps", eps, "added to the variance");
    visit("form", form, "how it is computed", {"auto", "recurrent", "parallel"});
    visit("note", note, "any text");
    visit("scale", scale, "of q.k");
    visit("window", window, "how far back");
    visit("coefficients", coefficients, "of the series");
    visit("widths", widths, "of the layers");
    visit("pattern", pattern, "order of mixers", {"window", "mlstm"});
    visit("position", position, "where a token stands");
  }
};

template <class F>
std::string message(F&& action) {
  try {
    action();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code, 2);
    return error.what();
  }
  return "no error";
}

std::string json_error(const char* text) {
  Example example;
  return message([&] { from_json(example, Json::parse(text)); });
}

std::string toml_error(const char* text) {
  Example example;
  return message([&] { from_toml(example, text, "run.toml"); });
}

double any_double() {
  const auto any = std::bit_cast<double>(*rc::gen::arbitrary<uint64_t>());
  return std::isnan(any) ? 0 : any;  // which no setting takes
}

std::string any_text() {
  std::string text = *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
  return text + *rc::gen::element<std::string>("", "\x7f", "\"'\\", "žluť", "\U0001f600");
}

Example any_example() {
  Example example;
  example.causal = *rc::gen::arbitrary<bool>();
  example.order = *rc::gen::arbitrary<int64_t>();
  example.eps = any_double();
  example.form = *rc::gen::element<std::string>("auto", "recurrent", "parallel");
  example.note = any_text();
  if (*rc::gen::arbitrary<bool>()) example.scale = any_double();
  if (*rc::gen::arbitrary<bool>()) example.window = std::nullopt;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) example.coefficients.push_back(any_double());
  example.widths = *rc::gen::arbitrary<std::vector<int64_t>>();
  example.pattern =
      *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>("window", "mlstm")
      );
  example.position.kind = *rc::gen::element<std::string>("none", "rope");
  example.position.base = *rc::gen::element(0.0, -0.0, 0.1, 10000.0, kInf, -kInf);
  return example;
}

TEST(Options, JsonKeepsTheOrderOfDeclaration) {
  EXPECT_EQ(
      to_line(to_json(Example{})),
      R"({"causal":true,"order":2,"eps":1e-05,"form":"auto","note":"","scale":null,"window":64,)"
      R"("coefficients":[],"widths":[1,2],"pattern":[],"position":{"kind":"none","base":10000.0}})"
  );
}

RC_GTEST_PROP(Options, JsonRoundTrips, ()) {
  const Example before = any_example();
  for (const Json& json : {to_json(before), changed(before)}) {
    Example after;
    from_json(after, Json::parse(json.dump()));
    RC_ASSERT(to_line(to_json(after)) == to_line(to_json(before)));
  }
}

RC_GTEST_PROP(Options, TomlRoundTrips, ()) {
  const Example before = any_example();
  Example after;
  from_toml(after, to_toml(before), "text");
  RC_ASSERT(to_line(to_json(after)) == to_line(to_json(before)));
}

RC_GTEST_PROP(Options, TextRoundTrips, ()) {
  Example before = any_example(), after;
  for (const Field& field : fields(before)) set(after, field.name, to_text(get_json(field)));
  RC_ASSERT(to_line(to_json(after)) == to_line(to_json(before)));
}

TEST(Options, DoublesKeepTheirBits) {
  for (double value : {5e-324, 0.1, -0.0, 1.7976931348623157e308, 1e22, kInf, -kInf}) {
    Example before, after;
    before.eps = value;
    from_json(after, Json::parse(changed(before).dump()));
    EXPECT_EQ(std::bit_cast<uint64_t>(after.eps), std::bit_cast<uint64_t>(value)) << value;
  }
}

TEST(Options, ChangedIsWhatDiffers) {
  Example example;
  EXPECT_EQ(changed(example), Json::object());
  EXPECT_EQ(to_toml(example), "");
  example.order = 4;
  example.window.reset();
  example.position.kind = "rope";
  EXPECT_EQ(to_line(changed(example)), R"({"order":4,"window":null,"position":{"kind":"rope"}})");
  EXPECT_EQ(to_toml(example), "order = 4\nwindow = \"none\"\n\n[position]\nkind = \"rope\"\n");
}

TEST(Options, ReadsText) {
  Example example;
  from_text(
      example,
      "order=4,coefficients=1;0.5,widths=[3, 4],causal=false,window=none,position.kind=rope"
  );
  EXPECT_EQ(
      to_line(changed(example)),
      R"({"causal":false,"order":4,"window":null,"coefficients":[1.0,0.5],"widths":[3,4],)"
      R"("position":{"kind":"rope"}})"
  );
  set(example, "widths", "");
  EXPECT_TRUE(example.widths.empty());
  from_text(example, "");
}

TEST(Options, TextMistakes) {
  Example example;
  const auto error = [&](const char* text) { return message([&] { from_text(example, text); }); };
  EXPECT_EQ(error("order"), "a setting must be name=value, got 'order'");
  EXPECT_EQ(error("ordr=4"), "unknown key 'ordr'; did you mean 'order'?");
  EXPECT_EQ(error("order=4x"), "order must be an integer, got \"4x\"");
  EXPECT_EQ(
      error("order=9223372036854775808"), "order must be an integer, got \"9223372036854775808\""
  );
  EXPECT_EQ(error("causal=yes"), "causal must be a boolean, got \"yes\"");
  EXPECT_EQ(error("eps=1e999"), "eps must be a number, got \"1e999\"");
  EXPECT_EQ(error("eps=nan"), "eps must be a number, got \"nan\"");
  EXPECT_EQ(error("eps=-nan"), "eps must be a number, got \"nan\"");
  EXPECT_EQ(error("scale=nan"), "scale must be a number or none, got \"nan\"");
  EXPECT_EQ(
      error("coefficients=1;nan"), "coefficients must be a list of numbers, got [1.0,\"nan\"]"
  );
  EXPECT_EQ(toml_error("eps = nan"), "run.toml:1: eps must be a number, got \"nan\"");
  EXPECT_EQ(error("note=\xff"), "note must be a text, got \"\uFFFD\"");
  EXPECT_EQ(error("widths=1;;2"), "widths must be a list of integers, got [1,\"\",2]");
}

TEST(Options, JsonMistakes) {
  EXPECT_EQ(json_error(R"({"ordr": 4})"), "unknown key 'ordr'; did you mean 'order'?");
  EXPECT_EQ(json_error(R"({"base": 4})"), "unknown key 'base'; did you mean 'position.base'?");
  EXPECT_EQ(
      json_error(R"({"position": {"kine": 4}})"),
      "unknown key 'position.kine'; did you mean 'position.kind'?"
  );
  EXPECT_EQ(
      json_error(R"({"zzz": 4})"),
      "unknown key 'zzz'; known: causal, order, eps, form, note, scale, window, coefficients, "
      "widths, "
      "pattern, "
      "position.kind, position.base"
  );
  EXPECT_EQ(json_error(R"({"order": "two"})"), "order must be an integer, got \"two\"");
  EXPECT_EQ(json_error(R"({"order": 2.5})"), "order must be an integer, got 2.5");
  EXPECT_EQ(
      json_error(R"({"order": 18446744073709551615})"),
      "order must be an integer, got 18446744073709551615"
  );
  EXPECT_EQ(json_error(R"({"scale": true})"), "scale must be a number or none, got true");
  EXPECT_EQ(json_error(R"({"widths": 3})"), "widths must be a list of integers, got 3");
  EXPECT_EQ(
      json_error(R"({"form": "fast"})"),
      "form must be one of auto, recurrent, parallel; got \"fast\""
  );
  EXPECT_EQ(
      json_error(R"({"pattern": ["window", "x"]})"),
      "pattern must be one of window, mlstm; got [\"window\",\"x\"]"
  );
  EXPECT_EQ(json_error(R"({"position": 3})"), "position must be a table, got 3");
  EXPECT_EQ(json_error("[]"), "settings must be an object, got []");
}

TEST(Options, TomlMistakesCarryTheLine) {
  EXPECT_EQ(
      toml_error("causal = false\nordr = 4\n"),
      "run.toml:2: unknown key 'ordr'; did you mean 'order'?"
  );
  EXPECT_EQ(
      toml_error("\n\n[position]\nbase = 'x'\n"),
      "run.toml:4: position.base must be a number, got \"x\""
  );
  EXPECT_EQ(
      toml_error("order = 1979-05-27"), "run.toml:1: order must be an integer, got \"1979-05-27\""
  );
  EXPECT_EQ(toml_error("order = 1979-05-27T)7:00:00"), "run.toml: is not TOML");
  EXPECT_EQ(toml_error("o\ufb50 = 4").substr(0, 12), "run.toml:1: ");
  EXPECT_EQ(toml_error("order = 1\norder = 2\n").substr(0, 12), "run.toml:2: ");
  EXPECT_EQ(
      toml_error("order = "),
      "run.toml:1: Error while parsing key-value pair: encountered end-of-file"
  );
}

TEST(Options, TomlDepthIsLimited) {
  const auto key = [](int64_t parts) {
    std::string text = "a";
    for (int64_t i = 1; i < parts; ++i) text += ".a";
    return text;
  };
  const std::string deep = "run.toml:2: is nested deeper than 16", plain = "run.toml:2: unknown";
  for (const std::string& toml : std::vector<std::string>{
           key(20'000) + " = 1",
           "[" + key(17) + "]",
           "x = { " + key(10) + " = {" + key(10) + " = 1 } }",
           "x = [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]",
           "x = " + std::string(999, '[') + std::string(999, ']')})
    EXPECT_EQ(toml_error(("\n" + toml).c_str()), deep) << toml.substr(0, 99);
  EXPECT_EQ(toml_error(("\n" + key(16) + " = 1").c_str()).substr(0, plain.size()), plain);
  const std::string dots = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z";
  for (const std::string& quoted : std::vector<std::string>{
           "\"" + dots + "\"",
           "'" + dots + "'",
           "\"\"\"\n" + dots + "\"\"\"",
           "'''" + dots + "'''"})
    EXPECT_EQ(toml_error(("# " + dots + "\nnote = " + quoted).c_str()), "no error") << quoted;
  std::string numbers;
  for (int64_t i = 0; i < 99; ++i) numbers += "1.5, ";
  EXPECT_EQ(toml_error(("coefficients = [" + numbers + "]").c_str()), "no error");
}

// Minutes when each key searched the table.
TEST(Options, TomlOfManyKeysTakesLinearTime) {
  std::string toml;
  for (int64_t i = 0; i < 200'000; ++i) toml += fmt::format("k{} = {}\n", i, i);
  EXPECT_EQ(toml_error(toml.c_str()).substr(0, 24), "run.toml:1: unknown key ");
}

TEST(Options, TomlFile) {
  const std::string path = testing::TempDir() + "options_test.toml";
  write_file(path, "eps = inf\nposition.kind = 'rope'\n");
  Example example;
  from_toml_file(example, path);
  EXPECT_EQ(example.eps, kInf);
  EXPECT_EQ(example.position.kind, "rope");
  std::remove(path.c_str());
  EXPECT_THROW(from_toml_file(example, path), DataError);
}

TEST(Options, Describes) {
  const std::vector<Description> rows = describe<Example>();
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[3].name, "form");
  EXPECT_EQ(rows[3].type, "text");
  EXPECT_EQ(rows[3].initial, "auto");
  EXPECT_EQ(rows[3].help, "how it is computed");
  EXPECT_EQ(rows[3].choices, (std::vector<std::string>{"auto", "recurrent", "parallel"}));
  EXPECT_EQ(rows[5].initial, "none");
  EXPECT_EQ(rows[8].initial, "[1,2]");
  EXPECT_EQ(rows[10].name, "position.kind");
}

}  // namespace
}  // namespace horner
