// horner report RUN...: the page of a comparison again, of runs beside each other, or beside what was
// expected of them.
#include <filesystem>

#include "cli/write_report.h"
#include "core/check.h"
#include "lab/compare/compare.h"
#include "report/answers.h"

namespace horner {

std::function<int()> declare_report(CLI::App& app) {
  const auto folders = std::make_shared<std::vector<std::string>>();
  const auto out = std::make_shared<std::string>(), record = std::make_shared<std::string>();
  app.add_option("runs", *folders, "a folder of `horner compare`, or folders of `horner train`")
      ->required();
  app.add_option("--out", *out, "folder of the report; empty: the first of those given");
  app.add_option(
      "--answers",
      *record,
      "write what was expected of runs and what came out to THIS.json and THIS.md"
  );
  return [=] {
    if (!record->empty()) {
      const Json rows = known_answers(*folders);
      const std::string text = answers_markdown(rows, shell_line(command_line()));
      make_folder(std::filesystem::absolute(*record).parent_path());
      write_file(*record + ".json", rows.dump(1) + "\n");
      write_file(*record + ".md", text);
      fmt::print("{}", text);
      return 0;
    }
    const std::string target = out->empty() ? folders->front() : *out;
    const std::string path = folders->front() + "/compare.json";
    Json all;
    if (std::filesystem::exists(path)) {
      HORNER_CHECK(
          folders->size() == 1, "{}: a comparison stands alone in a report", folders->front()
      );
      all = parse_json(read_file(path), path);
      if (!all.contains("rows") || !all.contains("origin"))
        throw DataError("{}: is not the result of horner compare", path);
    } else {
      const CompareResult result = gather(*folders);
      all = with_origin(result.json(), result.options.seed, result.options.seeds);
    }
    write_compare(all, target);
    fmt::print(
        "{}\n{}\n{}/report.html\n",
        compare_table(all).text(),
        all["verdict"].get<std::string>(),
        target
    );
    return 0;
  };
}

}  // namespace horner
