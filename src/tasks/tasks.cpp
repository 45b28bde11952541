// THE list of tasks. Nothing else knows their names: commands, reports and tests walk it.
#include "core/check.h"
#include "core/nearest.h"
#include "tasks/mqar.h"
#include "tasks/task.h"

namespace horner {
namespace {

struct About {
  std::string_view name, paper, about;
  std::vector<std::string> variants, refused;
};

template <class T>
TaskType row(About about) {
  return {
      about.name,
      about.paper,
      about.about,
      std::move(about.variants),
      std::move(about.refused),
      [](const Json& json) -> std::shared_ptr<Task> {
        typename T::Options options;
        from_json(options, json);
        return std::make_shared<T>(options);
      },
      [](std::string_view text) {
        typename T::Options options;
        from_text(options, text);
        return to_json(options);
      },
      [] { return describe<typename T::Options>(); },
  };
}

}  // namespace

const std::vector<TaskType>& tasks() {
  static const std::vector<TaskType> list = {
      row<Mqar>(
          {"mqar",
           "2312.04927",
           "recall the values of several keys",
           {"", "T=20,pairs=3,vocabulary=64,noise=true", "T=64;128,pairs=4;8,train=96;32"},
           {"T=63", "T=64,pairs=17", "vocabulary=32", "T=64;128,pairs=4"}}
      ),
  };
  return list;
}

const TaskType& find_task(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskType& type : tasks()) {
    if (type.name == name) return type;
    names.emplace_back(type.name);
  }
  throw UsageError("{}", unknown("task", name, names));
}

std::shared_ptr<Task> make_task(std::string_view text) {
  const size_t colon = text.find(':');
  const TaskType& type = find_task(text.substr(0, colon));
  return type.make(type.parse(colon == text.npos ? "" : text.substr(colon + 1)));
}

}  // namespace horner
