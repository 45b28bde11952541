// horner list: every op, mixer and task on the lists, as a table, Markdown or JSON.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <unistd.h>

#include "cli/command.h"
#include "core/file.h"
#include "core/json.h"
#include "core/number.h"
#include "core/options.h"
#include "lab/explain/explain.h"
#include "mixers/mixer.h"
#include "ops/op.h"
#include "report/explain_charts.h"
#include "report/maths.h"
#include "report/mixer_page.h"
#include "report/terminal.h"
#include "tasks/task.h"

namespace horner {
namespace {

constexpr int64_t kDim = 64, kTokens = 1024;  // of an op's state
constexpr int64_t kWidth = 1024,
                  kMixerTokens = 512;  // of a mixer's state: a longer one takes half a second

// Measured from the tensors of a state; no memory is touched.
int64_t state_bytes(const Op& op) {
  const at::Tensor x =
      at::empty({1, kTokens, 1, kDim}, at::TensorOptions().device(at::kMeta).dtype(at::kFloat));
  Inputs in;
  for (const Input& input : op.inputs) {
    if (!input.optional) in.*input.tensor = x;
  }
  return op.zero_state(in, kTokens, op.defaults).bytes();
}

std::vector<std::string> inputs(const Op& op) {  // "g?" may be absent
  std::vector<std::string> list;
  for (const Input& x : op.inputs)
    list.push_back(fmt::format("{}{}", x.name, x.optional ? "?" : ""));
  return list;
}

int64_t usual_bytes(const MixerType& type) {
  return state_bytes(type, kWidth, kMixerTokens, type.parse(type.usual));
}

std::vector<std::string> forms(const Op& op, bool kernels) {
  std::vector<std::string> list;
  for (const Form& form : op.forms) {
    if ((form.place == Place::cuda) == kernels) list.emplace_back(form.name);
  }
  return list;
}

Json settings(const std::vector<Description>& descriptions) {
  Json options = Json::object();
  for (const Description& d : descriptions) {
    options[d.name] = {{"default", d.initial}, {"help", d.help}};
    if (!d.choices.empty()) options[d.name]["choices"] = d.choices;
  }
  return options;
}

Json as_json(const TaskType& type) {
  return {
      {"name", type.name},
      {"about", type.about},
      {"paper", type.paper},
      {"options", settings(type.describe())},
      {"variants", type.variants}};
}

// Every form runs on both; where there are kernels, a GPU takes them first.
std::string devices(const Op& op) {
  return forms(op, true).empty() ? "CPU, GPU" : "CPU, GPU kernels";
}

const Op* op_of(const MixerType& type) {  // null: it has none; as the contract makes it
  constexpr int64_t D = 16;
  const c10::NoGradGuard no_graph;
  return type.make(D, type.parse(type.variants.at(0)))->core(at::zeros({1, 2, D})).op;
}

Json as_json(const MixerType& type) {
  const Op* op = op_of(type);
  return {
      {"name", type.name},
      {"equation", type.equation},
      {"paper", type.paper},
      {"op", op ? Json(op->name) : Json()},
      {"state_bytes", usual_bytes(type)},
      {"state_settings", type.usual},
      {"options", settings(type.describe())},
      {"variants", type.variants}};
}

Json as_json() {
  Json list = Json::array();
  for (const Op& op : ops()) {
    Options defaults = op.defaults;
    Json options = Json::object();
    for (const Field& field : fields(defaults)) {
      const bool taken =
          std::find(op.options.begin(), op.options.end(), field.name) != op.options.end();
      if (taken) options[field.name] = {{"default", get_json(field)}, {"help", field.help}};
    }
    Json variants = Json::array();
    for (const Variant& variant : op.variants) variants.push_back(variant.name);
    list.push_back(
        {{"name", op.name},
         {"equation", op.equation},
         {"inputs", inputs(op)},
         {"forms", forms(op, false)},
         {"kernels", forms(op, true)},
         {"state_bytes", state_bytes(op)},
         {"options", options},
         {"variants", variants}}
    );
  }
  Json rows = Json::array();
  for (const MixerType& type : mixers()) rows.push_back(as_json(type));
  Json task_rows = Json::array();
  for (const TaskType& type : tasks()) task_rows.push_back(as_json(type));
  return {
      {"ops", list},
      {"state_of", {{"H", 1}, {"K", kDim}, {"V", kDim}, {"T", kTokens}, {"dtype", "fp32"}}},
      {"mixers", rows},
      {"mixer_state_of", {{"D", kWidth}, {"T", kMixerTokens}, {"dtype", "fp32"}}},
      {"tasks", task_rows}};
}

// As GitHub typesets it inside a line of Markdown.
std::string equation_text(std::string_view equation, bool markdown) {
  return markdown ? "$`" + tex(std::string(equation)) + "`$" : std::string(equation);
}

Table as_table() {
  const std::string state = fmt::format("state, K=V={}", kDim);
  Table table{{"op", "recurrence", "inputs", state, "forms", "devices"}, {}};
  for (const Op& op : ops()) {
    table.rows.push_back(
        {std::string(op.name),
         std::string(op.equation),
         fmt::format("{}", fmt::join(inputs(op), " ")),
         short_bytes(double(state_bytes(op))),
         fmt::format("{}", fmt::join(forms(op, false), ", ")),
         devices(op)}
    );
  }
  return table;
}

Table mixer_table(bool markdown) {
  const std::string state = fmt::format("state, D={} T={}", kWidth, kMixerTokens);
  Table table{{"mixer", "equation", "arXiv", state, "forms", "devices"}, {}};
  for (const MixerType& type : mixers()) {
    const Op* op = op_of(type);
    table.rows.push_back(
        {std::string(type.name),
         equation_text(type.equation, markdown),
         std::string(type.paper),
         short_bytes(double(usual_bytes(type))),
         op ? fmt::format("{}'s", op->name) : "one",
         op ? devices(*op) : "CPU, GPU"}
    );
  }
  return table;
}

Table task_table() {
  Table table{{"task", "what", "arXiv"}, {}};
  for (const TaskType& type : tasks()) {
    table.rows.push_back({std::string(type.name), std::string(type.about), std::string(type.paper)}
    );
  }
  return table;
}

// On a narrow terminal the equations need the room of the last two columns, which --json has as well.
std::string narrowed(Table table) {
  const size_t width = terminal_width(STDOUT_FILENO);
  const std::string text = table.text();
  const size_t rule = text.find('\n') + 1;  // the line below the head is as wide as the table
  if (width == 0 || text.find('\n', rule) - rule <= width || table.head.back() != "devices")
    return fitted(table);
  table.head.resize(table.head.size() - 2);
  for (auto& row : table.rows) row.resize(row.size() - 2);
  return fitted(table);
}

template <class Type>  // a mixer or a task
Table settings_table(const Type& type, const TypeSpec& spec) {
  Table table{{"setting", spec.settings.empty() ? "default" : "value", "meaning"}, {}};
  for (const Description& d : type.describe()) {
    const std::string choices =
        d.choices.empty() ? "" : fmt::format(" ({})", fmt::join(d.choices, ", "));
    table.rows.push_back({d.name, spec.find(d.name).value_or(d.initial), d.help + choices});
  }
  return table;
}

// A page for each mixer, with the picture of its map.
void write_pages(const std::string& folder) {
  constexpr int64_t T = 48;
  make_folder(folder);
  ExplainOptions options;
  options.T = T;
  for (const MixerType& type : mixers()) {
    const std::string name(type.name), base = folder + "/" + name;
    const Explanation e = explain(name, options);
    write_file(base + ".md", mixer_page(type, e));
    write_file(base + ".svg", svg_file(svg(map_picture(e, name + ": who reads whom"))));
  }
  write_file(folder + "/README.md", mixer_index());
  fmt::print("{} pages and {}/README.md are written.\n", mixers().size(), folder);
}

}  // namespace

std::function<int()> declare_list(CLI::App& app) {
  const auto json = std::make_shared<bool>(false), markdown = std::make_shared<bool>(false);
  const auto mixer = std::make_shared<std::string>(), task = std::make_shared<std::string>();
  CLI::Option* as = app.add_flag("--json", *json, "everything, as JSON");
  app.add_flag("--markdown", *markdown, "the tables as Markdown")->excludes(as);
  CLI::Option* one =
      app.add_option("--mixer", *mixer, "the settings of this mixer alone, as in gla:heads=2");
  app.add_option("--task", *task, "the settings of this task alone, as in mqar:T=128")
      ->excludes(one);
  const auto pages = std::make_shared<std::string>();
  app.add_option("--pages", *pages, "folder that a page for each mixer is written to, as Markdown")
      ->excludes(as)
      ->excludes(one);
  return [json, markdown, mixer, task, pages] {
    at::set_num_threads(1);  // threads that wait for each other cost more than this little work
    if (!pages->empty()) {
      write_pages(*pages);
      return 0;
    }
    const auto show = [&](const Table& t) { return *markdown ? t.markdown() : narrowed(t); };
    const auto show_one = [&](const auto& type, const TypeSpec& spec) {
      type.parse(spec.settings_text());  // or says what is wrong
      fmt::print("{}", *json ? as_json(type).dump(2) + "\n" : show(settings_table(type, spec)));
    };
    if (!mixer->empty()) {
      const MixerSpec spec = MixerSpec::parse(*mixer);
      show_one(find_mixer(spec.name), spec);
    } else if (!task->empty()) {
      const TypeSpec spec = TypeSpec::parse(*task);
      show_one(find_task(spec.name), spec);
    } else if (*json) {
      fmt::print("{}\n", as_json().dump(2));
    } else {
      fmt::print("{}\n{}\n{}", show(as_table()), show(mixer_table(*markdown)), show(task_table()));
      if (!*markdown)
        fmt::print(
            "\n{}\n",
            wrapped(
                fmt::format(
                    "States in fp32: of one head of an op after {} tokens, power's at order 2; of "
                    "a mixer with all its heads.",
                    kTokens
                ),
                terminal_width(STDOUT_FILENO)
            )
        );
    }
    return 0;
  };
}

}  // namespace horner
