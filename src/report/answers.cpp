#include "report/answers.h"

#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/number.h"
#include "report/table.h"
#include "report/train.h"
#include "train/expect.h"

namespace horner {

Json known_answers(const std::vector<std::string>& folders) {
  Json rows = Json::array();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/result.json", env_path = folder + "/env.json";
    if (!std::filesystem::exists(path)) throw DataError("{}: holds no finished run", folder);
    const TrainResult r = TrainResult::from(parse_json(read_file(path), path));
    const Json env = parse_json(read_file(env_path), env_path);
    HORNER_CHECK(!r.options.expect.empty(), "{}: nothing was expected of this run", folder);
    for (const Answer& a : answers(r)) {
      rows.push_back(
          {{"run", std::filesystem::path(r.folder).filename().string()},
           {"task", r.options.task},
           {"pattern", r.options.model.pattern},
           {"expected", a.expected},
           {"measured", std::isnan(a.measured) ? Json() : Json(a.measured)},
           {"holds", a.holds},
           {"steps", r.steps},
           {"seconds", r.seconds},
           {"precision", r.options.train.precision}}
      );
      for (const char* key : {"device", "seed", "commit", "date"}) rows.back()[key] = env.at(key);
    }
  }
  return rows;
}

std::string answers_markdown(const Json& rows, const std::string& command) {
  Table table{
      {"run", "expected", "measured", "holds", "steps", "time", "device", "commit", "date"}, {}};
  std::string last;
  for (const Json& row : rows) {
    const std::string run = row["run"];
    const Json& x = row["measured"];
    table.rows.push_back(
        {run == last ? "" : run,
         row["expected"],
         x.is_null() ? "-" : fmt::format("{:.4f}", x.get<double>()),
         row["holds"].get<bool>() ? "yes" : "**no**",
         std::to_string(row["steps"].get<int64_t>()),
         short_time(row["seconds"]),
         fmt::format(
             "{}, {}", row["device"].get<std::string>(), row["precision"].get<std::string>()
         ),
         row["commit"],
         row["date"]}
    );
    last = run;
  }
  return fmt::format(
      "# Known answers\n\nRuns of `configs/`, beside what was expected of them. Written by `{}`, "
      "never by "
      "hand; the JSON file beside it has the same numbers.\n\n{}",
      command,
      table.markdown()
  );
}

}  // namespace horner
