#include "report/answers.h"

#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "report/table.h"
#include "report/train.h"
#include "train/expect.h"
#include "train/run_folder.h"

namespace horner {
std::vector<KnownAnswer> known_answers(const std::vector<std::string>& folders) {
  std::vector<KnownAnswer> rows;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/result.json";
    if (!std::filesystem::exists(path)) throw DataError("{}: holds no finished run", folder);
    const TrainResult r = read_result(folder);
    KnownAnswer common = read_from(folder + "/env.json", [](const Json& env) {
      KnownAnswer a;
      a.device = env.at("device").get<std::string>();
      a.seed = env.at("seed").get<int64_t>();
      a.commit = env.at("commit").get<std::string>();
      a.date = env.at("date").get<std::string>();
      return a;
    });
    HORNER_CHECK(!r.options.expect.empty(), "{}: nothing was expected of this run", folder);
    common.run = std::filesystem::path(r.folder).filename().string();
    common.task = r.options.task;
    common.pattern = r.options.model.pattern;
    common.steps = r.steps;
    common.seconds = r.seconds;
    common.precision = r.options.train.precision;
    for (const Answer& a : answers(r)) {
      rows.push_back(common);
      rows.back().expected = a.expected;
      rows.back().measured = a.measured;
      rows.back().holds = a.holds;
    }
  }
  return rows;
}

Json answers_json(const std::vector<KnownAnswer>& answers) {
  Json rows = Json::array();
  for (const KnownAnswer& a : answers) {
    rows.push_back(
        {{"run", a.run},
         {"task", a.task},
         {"pattern", a.pattern},
         {"expected", a.expected},
         {"measured", std::isnan(a.measured) ? Json() : Json(a.measured)},
         {"holds", a.holds},
         {"steps", a.steps},
         {"seconds", a.seconds},
         {"precision", a.precision},
         {"device", a.device},
         {"seed", a.seed},
         {"commit", a.commit},
         {"date", a.date}}
    );
  }
  return rows;
}

std::string answers_markdown(const std::vector<KnownAnswer>& answers, const std::string& command) {
  Table table{
      {"run", "expected", "measured", "holds", "steps", "time", "device", "commit", "date"}, {}};
  std::string last;
  for (const KnownAnswer& a : answers) {
    table.rows.push_back(
        {a.run == last ? "" : markdown_text(a.run),
         markdown_text(a.expected),
         std::isnan(a.measured) ? "-" : fmt::format("{:.4f}", a.measured),
         a.holds ? "yes" : "**no**",
         std::to_string(a.steps),
         short_time(a.seconds),
         markdown_text(a.device + ", " + a.precision),
         markdown_text(a.commit),
         markdown_text(a.date)}
    );
    last = a.run;
  }
  return fmt::format(
      "# Known answers\n\nRuns of `configs/`, beside what was expected of them. Written by {}, "
      "never by hand; the JSON file beside it has the same numbers.\n\n{}",
      markdown_code(command),
      table.markdown()
  );
}

}  // namespace horner
