// compare.json comes back as it was written; a file of another version is one line, never a crash.
#include "lab/compare/read.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace horner {
namespace {

CompareResult result() {
  CompareResult r;
  r.metric = "accuracy";
  r.task = {{"name", "mqar"}, {"T", 64}, {"options", Json::object()}};
  r.reference = "softmax";
  r.verdict = "none";
  r.warnings = {"one"};
  r.baselines = {{"chance", .1, "any"}};
  r.origin = {{"command", "./horner compare"}};
  CompareRow row;
  row.mixer = row.settings = "softmax";
  row.seeds = {0, 1};
  row.scores = {.5, .75};
  row.score = t_interval(row.scores);
  row.slices["loss"] = row.score;
  row.lengths[128] = row.score;
  row.grid[1e-3] = row.score;
  row.curve = {{10, {.5, std::nan(""), 1}}};
  row.by_position = {1, 2};
  row.speed = {{16, 100, 50, 1024}};
  r.rows = {row};
  r.maps = {{"softmax", 2, {1, 0, .5, .5}}};
  r.differences = {{"gla", "softmax", row.score, {.1, 0, .2, 5, 10}}};
  CompareRun run;
  run.mixer = "softmax";
  run.lr = 1e-3;
  run.result.valid.values["accuracy"] = .5;
  run.result.test.values["accuracy"] = .25;
  run.result.folder = "runs/a";
  r.runs = {run};
  return r;
}

TEST(ReadCompare, ComesBackAsItWasWritten) {
  const Json json = Json::parse(result().json().dump());
  EXPECT_EQ(Json::parse(compare_from(json, "compare.json").json().dump()), json);
}

// What reading `json` says: empty where it reads.
std::string error_of(const Json& json) {
  try {
    compare_from(json, "compare.json");
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

TEST(ReadCompare, NamesWhatIsMissing) {
  const std::string start =
      "compare.json: was written by another version, or not by horner compare: ";
  Json json = Json::parse(result().json().dump());
  json["rows"][0]["score"].erase("half");
  EXPECT_EQ(error_of(json), start + "field rows[0].score.half is missing");
  json = Json::parse(result().json().dump());
  json["rows"][0]["state_bytes"] = "many";
  EXPECT_EQ(error_of(json), start + "rows[0].state_bytes must be a whole number");
  json = Json::parse(result().json().dump());
  json["maps"][0]["values"].erase(0);
  EXPECT_EQ(error_of(json), start + "the map of softmax must hold T x T numbers");
  json = Json::parse(result().json().dump());
  json["options"]["colour"] = 1;
  EXPECT_NE(error_of(json).find("colour"), std::string::npos);
  for (const char* text : {"[]", "7", "{}", "null", R"({"rows": [], "origin": []})"})
    EXPECT_EQ(error_of(Json::parse(text)).find(start), 0u) << text;
}

// Every field, removed and replaced by something else: it reads, or one line says why not.
TEST(ReadCompare, AnyFieldMayBeWrong) {
  const Json whole = Json::parse(result().json().dump());
  const Json flat = whole.flatten();
  size_t refused = 0;
  for (const auto& [path, value] : flat.items()) {
    for (const char* other : {R"("x")", "-3", "null", "{}", "[1]", "1e300"}) {
      Json json = whole;
      json[Json::json_pointer(path)] = Json::parse(other);
      if (!error_of(json).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, flat.size());
}

}  // namespace
}  // namespace horner
