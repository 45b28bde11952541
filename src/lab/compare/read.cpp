#include "lab/compare/read.h"

#include <cmath>

#include "core/check.h"
#include "core/file.h"
#include "core/number.h"

namespace horner {
namespace {

// A value with its place, so that every error can name it: "rows[2].score.mean".
class Value {
 public:
  Value(const Json& json, const std::string& source, std::string place = "")
      : json_(json), source_(source), place_(std::move(place)) {}

  bool is_null() const { return json_.is_null(); }
  bool has(const char* name) const { return json_.is_object() && json_.contains(name); }

  Value at(const std::string& name) const {
    const std::string place = place_.empty() ? name : place_ + "." + name;
    if (!json_.is_object() || !json_.contains(name)) fail("field " + place + " is missing");
    return {json_.at(name), source_, place};
  }

  double number() const {  // NaN for null
    if (json_.is_null()) return std::nan("");
    if (!json_.is_number()) fail(place_ + " must be a number");
    return json_.get<double>();
  }
  int64_t integer() const {
    if (!json_.is_number_integer()) fail(place_ + " must be a whole number");
    return json_.get<int64_t>();
  }
  int64_t length() const {  // of a sequence
    if (integer() < 1) fail(place_ + " must be at least 1");
    return integer();
  }
  bool flag() const {
    if (!json_.is_boolean()) fail(place_ + " must be true or false");
    return json_.get<bool>();
  }
  std::string text() const {
    if (!json_.is_string()) fail(place_ + " must be a text");
    return json_.get<std::string>();
  }
  const Json& object() const {
    if (!json_.is_object()) fail(place_ + " must be an object");
    return json_;
  }

  std::vector<Value> list() const {
    if (!json_.is_array()) fail(place_ + " must be a list");
    std::vector<Value> values;
    for (size_t i = 0; i < json_.size(); ++i)
      values.emplace_back(json_[i], source_, fmt::format("{}[{}]", place_, i));
    return values;
  }
  std::vector<std::pair<std::string, Value>> items() const {
    std::vector<std::pair<std::string, Value>> values;
    for (const auto& [name, value] : object().items()) values.emplace_back(name, at(name));
    return values;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(
        "{}: was written by another version, or not by horner compare: {}", source_, what
    );
  }

 private:
  const Json& json_;
  const std::string& source_;
  std::string place_;
};

template <class Get>
auto each(const Value& value, Get&& get) {
  std::vector<decltype(get(value))> list;
  for (const Value& item : value.list()) list.push_back(get(item));
  return list;
}

double number_of(const Value& v) { return v.number(); }
int64_t integer_of(const Value& v) { return v.integer(); }
std::string text_of(const Value& v) { return v.text(); }

Interval interval_of(const Value& v) {
  return {v.at("mean").number(), v.at("half").number(), v.at("n").integer()};
}

SpeedPoint speed_of(const Value& v) {
  return {
      v.at("T").length(),
      v.at("prefill").number(),
      v.at("decode").number(),
      v.at("state_bytes").integer(),
      v.at("decode_p10").number(),
      v.at("decode_p90").number()};
}

Crossover crossover_of(const Value& v) {
  using Kind = Crossover::Kind;
  if (v.has("low")) return {Kind::between, v.at("low").integer(), v.at("high").integer()};
  if (v.is_null()) return {};
  for (const Kind kind : {Kind::always, Kind::never, Kind::not_resolved}) {
    if (v.text() == Crossover{kind}.json()) return {kind};
  }
  v.fail("a crossover must be always, never, not resolved, or low and high");
}

int64_t length_named(const Value& at, const std::string& name) {
  const std::optional<int64_t> length = whole_number(name);
  if (!length) at.fail("a length of the test must be a whole number, got " + name);
  return *length;
}

CompareRow compare_row(const Value& v) {
  CompareRow row;
  row.mixer = v.at("mixer").text();
  row.settings = v.at("settings").text();
  row.D = v.at("D").integer();
  row.lr = v.at("lr").number();
  row.lr_note = v.at("lr_note").text();
  row.seeds = each(v.at("seeds"), integer_of);
  row.scores = each(v.at("scores"), number_of);
  row.score = interval_of(v.at("score"));
  row.parameters = v.at("parameters").integer();
  row.state_bytes = v.at("state_bytes").integer();
  row.flops_per_token = v.at("flops_per_token").number();
  row.steps = v.at("steps").integer();
  row.seconds = v.at("seconds").number();
  row.train_speed = v.at("train_tokens_per_second").number();
  row.peak_bytes = v.at("peak_bytes").number();
  row.budget_mismatch = v.at("budget_mismatch").number();
  row.memory_crossover = v.at("memory_crossover").number();
  row.time_crossover = crossover_of(v.at("time_crossover"));
  row.failed = v.at("failed").integer();
  row.by_position = each(v.at("loss_by_position"), number_of);
  row.speed = each(v.at("speed"), speed_of);
  row.curve = each(v.at("curve"), [](const Value& p) {
    return CompareRow::Point{p.at("step").integer(), interval_of(p.at("valid"))};
  });
  if (v.has("test")) {
    for (const auto& [name, value] : v.at("test").items()) row.slices[name] = interval_of(value);
  }
  if (v.has("lengths")) {
    for (const auto& [name, value] : v.at("lengths").items())
      row.lengths[length_named(value, name)] = interval_of(value);
  }
  if (v.has("grid")) {
    for (const Value& g : v.at("grid").list())
      row.grid[g.at("lr").number()] = interval_of(g.at("valid"));
  }
  return row;
}

Difference difference_of(const Value& v) {
  const Value e = v.at("examples");
  return {
      v.at("a").text(),
      v.at("b").text(),
      interval_of(v.at("seeds")),
      {e.at("mean").number(),
       e.at("low").number(),
       e.at("high").number(),
       e.at("n").integer(),
       e.at("draws").integer()}};
}

MixerMap map_of_row(const Value& v) {
  MixerMap map{v.at("mixer").text(), v.at("T").length(), each(v.at("values"), number_of)};
  if (map.T > 65536 || int64_t(map.values.size()) != map.T * map.T)
    v.fail(fmt::format("the map of {} must hold T x T numbers", map.mixer));
  return map;
}

CompareRun run_of(const Value& v, const std::string& metric) {
  CompareRun run;
  run.mixer = v.at("mixer").text();
  run.lr = v.at("lr").number();
  run.seed = v.at("seed").integer();
  run.failure = v.at("failure").text();
  run.result.folder = v.at("folder").text();
  run.result.valid.values[metric] = v.at("valid").number();
  run.result.test.values[metric] = v.at("test").number();
  run.result.steps = v.at("steps").integer();
  run.result.stopped = v.at("stopped").text();
  run.result.seconds = v.at("seconds").number();
  return run;
}

void read_options(CompareOptions& options, const Value& v) {
  options.mixers = each(v.at("mixers"), text_of);
  Json settings = v.object();
  settings.erase("mixers");
  try {
    from_json(options, settings);
  } catch (const UsageError& e) {
    v.fail(std::string("options: ") + e.what());
  }
}

}  // namespace

CompareResult compare_from(const Json& json, const std::string& source) {
  const Value v(json, source);
  CompareResult r;
  r.metric = v.at("metric").text();
  r.smaller = v.at("smaller_is_better").flag();
  r.task = v.at("task").object();
  v.at("task").at("name").text();
  v.at("task").at("T").length();
  r.device = v.at("device").text();
  r.precision = v.at("precision").text();
  r.seconds = v.at("seconds").number();
  r.reference = v.at("reference").text();
  r.verdict = v.at("verdict").text();
  r.warnings = each(v.at("warnings"), text_of);
  r.baselines = each(v.at("baselines"), [](const Value& b) {
    return Baseline{b.at("name").text(), b.at("score").number(), b.at("meaning").text()};
  });
  r.rows = each(v.at("rows"), compare_row);
  r.maps = each(v.at("maps"), map_of_row);
  r.differences = each(v.at("differences"), difference_of);
  r.runs = each(v.at("runs"), [&](const Value& run) { return run_of(run, r.metric); });
  for (const Value& pair : v.at("origin").list()) {
    const std::vector<std::string> words = each(pair, text_of);
    if (words.size() != 2) pair.fail("origin must hold pairs of texts");
    r.origin.emplace_back(words[0], words[1]);
  }
  read_options(r.options, v.at("options"));
  return r;
}

CompareResult read_compare(const std::string& path) {
  return compare_from(parse_json(read_file(path), path), path);
}

}  // namespace horner
