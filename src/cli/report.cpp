// horner report RUN...: the page of a comparison again, of runs beside each other, or beside what was
// expected of them.
#include <unistd.h>

#include <filesystem>

#include "cli/write_report.h"
#include "core/check.h"
#include "lab/compare/read.h"
#include "report/answers.h"
#include "report/terminal.h"

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
      const std::vector<KnownAnswer> answers = known_answers(*folders);
      const std::string text = answers_markdown(answers, shell_line(command_line()));
      make_folder(std::filesystem::absolute(*record).parent_path());
      write_file(*record + ".json", answers_json(answers).dump(1) + "\n");
      write_file(*record + ".md", text);
      fmt::print("{}", text);
      return 0;
    }
    const std::string target = out->empty() ? folders->front() : *out;
    const std::string path = folders->front() + "/compare.json";
    CompareResult result;
    if (std::filesystem::exists(path)) {
      HORNER_CHECK(
          folders->size() == 1, "{}: a comparison stands alone in a report", folders->front()
      );
      result = read_compare(path);
    } else {
      result = gather(*folders);
      set_origin(result);
    }
    const std::string earlier = write_compare(result, target);
    fmt::print(
        "{}\n{}/report.html shows it.\n{}",
        compare_text(result, terminal_width(STDOUT_FILENO)),
        target,
        earlier.empty()
            ? ""
            : "The report of another comparison that stood there is in " + earlier + ".\n"
    );
    return 0;
  };
}

}  // namespace horner
