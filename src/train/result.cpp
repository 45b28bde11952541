// Results to and from JSON.
#include <cmath>

#include "core/check.h"
#include "core/number.h"
#include "train/train.h"

namespace horner {
namespace {

std::vector<double> numbers(const Json& json) {
  std::vector<double> list;
  for (const Json& value : json) list.push_back(number_or_nan(value));
  return list;
}

int64_t length_named(const std::string& name) {
  const std::optional<int64_t> length = whole_number(name);
  HORNER_CHECK(length, "a length of the test must be a whole number, got '{}'", name);
  return *length;
}

}  // namespace

double Scores::value(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nan("") : found->second;
}

Json Scores::json() const {
  Json json = {{"examples", examples}};
  for (const auto& [name, value] : values) json[name] = value;
  if (!loss_by_position.empty()) json["loss_by_position"] = loss_by_position;
  if (!by_example.empty()) json["by_example"] = by_example;
  return json;
}

Scores Scores::from(const Json& json) {
  Scores s;
  for (const auto& [name, value] : json.items()) {
    if (name == "examples") {
      s.examples = value.get<int64_t>();
    } else if (name == "loss_by_position") {
      s.loss_by_position = numbers(value);
    } else if (name == "by_example") {
      s.by_example = numbers(value);
    } else {
      s.values[name] = number_or_nan(value);
    }
  }
  return s;
}

Json TrainResult::json() const {
  Json json = {
      {"folder", folder},
      {"options", to_json(options)},
      {"metric", metric},
      {"steps", steps},
      {"tokens", tokens},
      {"parameters", parameters},
      {"state_bytes", state_bytes},
      {"flops_per_token", flops_per_token},
      {"seconds", seconds},
      {"tokens_per_second", tokens_per_second},
      {"peak_bytes", peak_bytes},
      {"resumed", resumed},
      {"finished", finished},
      {"stopped", stopped},
      {"notes", notes},
      {"valid", valid.json()},
      {"test", test.json()}};
  for (const auto& [T, scores] : lengths) json["lengths"][std::to_string(T)] = scores.json();
  json["curve"] = Json::array();
  for (const Point& p : curve) json["curve"].push_back({p.step, p.loss, p.valid});
  return json;
}

TrainResult TrainResult::from(const Json& json) {
  TrainResult r;
  r.folder = json.at("folder");
  from_json(r.options, json.at("options"));
  r.metric = json.at("metric");
  r.steps = json.at("steps");
  r.tokens = json.at("tokens");
  r.parameters = json.at("parameters");
  r.state_bytes = json.at("state_bytes");
  r.flops_per_token = number_or_nan(json.at("flops_per_token"));
  r.seconds = number_or_nan(json.at("seconds"));
  r.tokens_per_second = number_or_nan(json.at("tokens_per_second"));
  r.peak_bytes = number_or_nan(json.at("peak_bytes"));
  r.resumed = json.at("resumed");
  r.finished = json.at("finished");
  r.stopped = json.at("stopped");
  r.notes = json.value("notes", std::vector<std::string>{});
  r.valid = Scores::from(json.at("valid"));
  r.test = Scores::from(json.at("test"));
  if (json.contains("lengths")) {
    for (const auto& [T, scores] : json["lengths"].items())
      r.lengths[length_named(T)] = Scores::from(scores);
  }
  for (const Json& p : json.at("curve"))
    r.curve.push_back({p[0].get<int64_t>(), number_or_nan(p[1]), number_or_nan(p[2])});
  return r;
}

}  // namespace horner
