// horner get: a model from the package index that pip is set to.
#include "lab/get/get.h"

#include <filesystem>

#include "cli/command.h"
#include "core/check.h"
#include "core/json.h"
#include "core/nearest.h"
#include "report/terminal.h"

namespace horner {
namespace {

bool is_here(const KnownModel& model) { return std::filesystem::exists(known_model_path(model)); }

void print_list(bool json) {
  Table table{{"model", "what", "where"}, {}};
  Json rows = Json::array();
  for (const KnownModel& model : known_models()) {
    const std::string where = is_here(model) ? known_model_path(model) : "";
    table.rows.push_back(
        {std::string(model.name), std::string(model.about), where.empty() ? "not here yet" : where}
    );
    rows.push_back(
        {{"name", model.name},
         {"about", model.about},
         {"package", model.package},
         {"version", model.version},
         {"folder", where.empty() ? Json() : Json(where)}}
    );
  }
  fmt::print("{}", json ? rows.dump(2) + "\n" : fitted(table));
}

}  // namespace

std::function<int()> declare_get(CLI::App& app) {
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false);
  app.add_option("model", *names, "what to download; nothing: show the list");
  app.add_flag("--json", *json, "the list, or the folders, as JSON");
  return [=] {
    std::vector<const KnownModel*> models;
    std::vector<std::string> known;
    for (const KnownModel& model : known_models()) known.emplace_back(model.name);
    for (const std::string& name : *names) {
      models.push_back(find_known_model(name));
      HORNER_CHECK(models.back(), "{}", unknown("model", name, known));
    }
    if (models.empty()) print_list(*json);
    Json rows = Json::array();
    for (const KnownModel* model : models) {
      const GetResult result = get_model(*model);
      rows.push_back(
          {{"name", model->name}, {"folder", result.folder}, {"downloaded", result.downloaded}}
      );
      if (!*json)
        fmt::print(
            "{}: {} {}\n",
            model->name,
            result.downloaded ? "is in" : "was already in",
            result.folder
        );
    }
    if (*json && !models.empty()) fmt::print("{}\n", rows.dump(2));
    return 0;
  };
}

}  // namespace horner
