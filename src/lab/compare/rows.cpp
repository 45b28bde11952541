// Summary of finished runs: a row per mixer, a difference per pair.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/number.h"
#include "lab/compare/compare.h"

namespace horner {
namespace {

using Runs = std::vector<const CompareRun*>;

template <class Get>
std::vector<double> each(const Runs& runs, Get&& get) {
  std::vector<double> values;
  for (const CompareRun* run : runs) values.push_back(get(run->result));
  return values;
}

// Means over runs, element by element, up to the length of the shortest.
template <class Get>
std::vector<double> means(const Runs& runs, Get&& get) {
  size_t n = runs.empty() ? 0 : get(runs[0]->result).size();
  for (const CompareRun* run : runs) n = std::min(n, get(run->result).size());
  std::vector<double> result(n, 0);
  for (const CompareRun* run : runs) {
    for (size_t i = 0; i < n; ++i) result[i] += get(run->result)[i] / double(runs.size());
  }
  return result;
}

// The runs of the learning rate that is best on validation.
Runs chosen(const CompareResult& r, CompareRow& row) {
  std::map<double, Runs> by_lr;
  for (const CompareRun& run : r.runs) {
    if (run.mixer != row.mixer) continue;
    if (!run.failure.empty()) {
      ++row.failed;
      by_lr[run.lr];
      continue;
    }
    by_lr[run.lr].push_back(&run);
  }
  size_t most = 0;
  for (const auto& [lr, runs] : by_lr) most = std::max(most, runs.size());
  double best = std::nan("");
  for (const auto& [lr, runs] : by_lr) {
    const std::vector<double> valid =
        each(runs, [&](const TrainResult& t) { return t.valid.value(r.metric); });
    if (valid.empty()) continue;
    row.grid[lr] = t_interval(valid);
    if (runs.size() < most) continue;  // some seeds failed: the mean would be over easier seeds
    double value = mean(valid);
    if (r.options.select == "max")
      value = r.smaller ? *std::min_element(valid.begin(), valid.end())
                        : *std::max_element(valid.begin(), valid.end());
    if (!std::isnan(best) && (r.smaller ? value >= best : value <= best)) continue;
    best = value;
    row.lr = lr;
  }
  if (by_lr.size() > 1 && !std::isnan(best)) {
    if (row.lr == by_lr.begin()->first) row.lr_note = "lowest of its grid";
    if (row.lr == by_lr.rbegin()->first) row.lr_note = "highest of its grid";
  }
  return std::isnan(best) ? Runs{} : by_lr[row.lr];
}

// A run that ended early keeps its last value. Else the mean would be over the slow runs only.
std::vector<CompareRow::Point> curve_of(const Runs& runs) {
  std::set<int64_t> steps;
  for (const CompareRun* run : runs) {
    for (const TrainResult::Point& p : run->result.curve) {
      if (!std::isnan(p.valid)) steps.insert(p.step);
    }
  }
  std::vector<CompareRow::Point> curve;
  for (const int64_t step : steps) {
    std::vector<double> values;
    for (const CompareRun* run : runs) {
      double value = std::nan("");
      for (const TrainResult::Point& p : run->result.curve) {
        if (p.step <= step && !std::isnan(p.valid)) value = p.valid;
      }
      if (!std::isnan(value)) values.push_back(value);
    }
    curve.push_back({step, t_interval(values)});
  }
  return curve;
}

CompareRow row_of(const CompareResult& r, const std::string& mixer) {
  CompareRow row;
  row.mixer = row.settings = mixer;
  const Runs runs = chosen(r, row);
  row.score = {std::nan(""), std::nan(""), 0};
  if (runs.empty()) return row;
  const TrainResult& first = runs[0]->result;
  const auto& asked = r.options.model.pattern;
  const size_t place = size_t(std::find(asked.begin(), asked.end(), "MIXER") - asked.begin());
  const auto& ran = runs[0]->options.model.pattern;
  row.settings = place < asked.size() ? ran[place] : mixer;
  row.D = first.options.model.D;
  for (const CompareRun* run : runs) row.seeds.push_back(run->seed);
  row.scores = each(runs, [&](const TrainResult& t) { return t.test.value(r.metric); });
  row.score = t_interval(row.scores);
  for (const auto& [name, value] : first.test.values) {
    row.slices[name] =
        t_interval(each(runs, [&, key = name](const TrainResult& t) { return t.test.value(key); }));
  }
  for (const auto& [T, scores] : first.lengths) {
    row.lengths[T] = t_interval(each(runs, [&, length = T](const TrainResult& t) {
      const auto found = t.lengths.find(length);
      return found == t.lengths.end() ? std::nan("") : found->second.value(r.metric);
    }));
  }
  row.by_example = means(
      runs, [](const TrainResult& t) -> auto& { return t.test.by_example; }
  );
  row.by_position = means(
      runs, [](const TrainResult& t) -> auto& { return t.test.loss_by_position; }
  );
  row.curve = curve_of(runs);
  row.parameters = first.parameters;
  row.state_bytes = first.state_bytes;
  row.flops_per_token = first.flops_per_token;
  row.steps = int64_t(mean(each(runs, [](const TrainResult& t) { return double(t.steps); })));
  row.train_speed = mean(each(runs, [](const TrainResult& t) { return t.tokens_per_second; }));
  row.peak_bytes = mean(each(runs, [](const TrainResult& t) { return t.peak_bytes; }));
  row.seconds = mean(each(runs, [](const TrainResult& t) { return t.seconds; }));
  return row;
}

// Over the seeds that both have.
Difference difference(const CompareRow& a, const CompareRow& b) {
  Difference d{a.mixer, b.mixer, {}, {}};
  std::vector<double> paired;
  for (size_t i = 0; i < a.seeds.size(); ++i) {
    const auto found = std::find(b.seeds.begin(), b.seeds.end(), a.seeds[i]);
    if (found != b.seeds.end())
      paired.push_back(a.scores[i] - b.scores[size_t(found - b.seeds.begin())]);
  }
  d.seeds = t_interval(paired);
  if (!a.by_example.empty() && a.by_example.size() == b.by_example.size())
    d.examples = paired_bootstrap(a.by_example, b.by_example);
  return d;
}

Json row_json(const CompareRow& row) {
  Json line = {
      {"mixer", row.mixer},
      {"settings", row.settings},
      {"D", row.D},
      {"lr", row.lr},
      {"lr_note", row.lr_note},
      {"seeds", row.seeds},
      {"scores", row.scores},
      {"score", row.score.json()},
      {"parameters", row.parameters},
      {"state_bytes", row.state_bytes},
      {"flops_per_token", row.flops_per_token},
      {"steps", row.steps},
      {"seconds", row.seconds},
      {"train_tokens_per_second", row.train_speed},
      {"peak_bytes", row.peak_bytes},
      {"budget_mismatch", row.budget_mismatch},
      {"memory_crossover", number_or_null(row.memory_crossover)},
      {"time_crossover", row.time_crossover.json()},
      {"failed", row.failed},
      {"loss_by_position", row.by_position},
      {"speed", speed_json(row.speed)}};
  for (const auto& [name, value] : row.slices) line["test"][name] = value.json();
  for (const auto& [T, value] : row.lengths) line["lengths"][std::to_string(T)] = value.json();
  for (const auto& [lr, value] : row.grid)
    line["grid"].push_back({{"lr", lr}, {"valid", value.json()}});
  line["curve"] = Json::array();
  for (const CompareRow::Point& p : row.curve)
    line["curve"].push_back({{"step", p.step}, {"valid", p.valid.json()}});
  return line;
}

}  // namespace

bool Difference::shown() const {
  // Seeds that all differ by the same have an interval of no width, which shows nothing: the examples decide.
  if (seeds.n >= 2 && (seeds.half > 0 || examples.n == 0)) return !seeds.holds(0);
  return examples.n > 0 && (examples.low > 0 || examples.high < 0);
}

void sum_up(CompareResult& r) {
  std::vector<std::string> names;
  for (const CompareRun& run : r.runs) {
    if (std::find(names.begin(), names.end(), run.mixer) == names.end()) names.push_back(run.mixer);
  }
  r.rows.clear();
  r.differences.clear();
  r.reference.clear();
  for (const std::string& name : names) r.rows.push_back(row_of(r, name));
  const CompareRow* reference = nullptr;
  for (const CompareRow& row : r.rows) {
    if (row.scores.empty()) continue;
    const bool softmax = row.mixer == "softmax" || row.mixer.starts_with("softmax:");
    if (reference == nullptr || softmax) reference = &row;
    if (softmax) break;
  }
  if (reference == nullptr) return;
  r.reference = reference->mixer;
  for (const CompareRow& row : r.rows) {
    if (&row != reference && !row.scores.empty())
      r.differences.push_back(difference(row, *reference));
  }
}

Json CompareResult::json() const {
  Json j;
  j["options"] = to_json(options);
  j["options"]["mixers"] = options.mixers;
  j["metric"] = metric;
  j["smaller_is_better"] = smaller;
  j["task"] = task;
  j["device"] = device;
  j["precision"] = precision;
  j["seconds"] = seconds;
  j["reference"] = reference;
  j["verdict"] = verdict;
  j["warnings"] = warnings;
  j["baselines"] = Json::array();
  for (const Baseline& b : baselines)
    j["baselines"].push_back({{"name", b.name}, {"score", b.score}, {"meaning", b.meaning}});
  j["rows"] = Json::array();
  for (const CompareRow& row : rows) j["rows"].push_back(row_json(row));
  j["maps"] = Json::array();
  for (const MixerMap& m : maps)
    j["maps"].push_back({{"mixer", m.mixer}, {"T", m.T}, {"values", m.values}});
  j["differences"] = Json::array();
  for (const Difference& d : differences)
    j["differences"].push_back(
        {{"a", d.a},
         {"b", d.b},
         {"seeds", d.seeds.json()},
         {"examples", d.examples.json()},
         {"shown", d.shown()}}
    );
  j["runs"] = Json::array();
  for (const CompareRun& run : runs) {
    const TrainResult& t = run.result;
    j["runs"].push_back(
        {{"mixer", run.mixer},
         {"lr", run.lr},
         {"seed", run.seed},
         {"failure", run.failure},
         {"folder", t.folder},
         {"valid", number_or_null(t.valid.value(metric))},
         {"test", number_or_null(t.test.value(metric))},
         {"steps", t.steps},
         {"stopped", t.stopped},
         {"seconds", t.seconds}}
    );
  }
  j["origin"] = Json::array();
  for (const auto& [name, value] : origin) j["origin"].push_back({name, value});
  return j;
}

}  // namespace horner
