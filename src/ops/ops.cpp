// THE list of ops. Nothing else knows their names: commands, reports, Python, bench and tests walk it.
#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"
#include "ops/attention/attention.h"
#include "ops/delta/delta.h"
#include "ops/linear/linear.h"
#include "ops/op.h"
#include "ops/power/power.h"
#include "ops/scan/scan.h"

namespace horner {
namespace {

std::vector<Op>& list() {
  static std::vector<Op> all = {attention_op(), power_op(), linear_op(), delta_op(), scan_op()};
  return all;
}

}  // namespace

const std::vector<Op>& ops() { return list(); }

void implement(std::string_view name, const std::vector<Form>& kernels, const Reader* reader) {
  for (Op& op : list()) {
    if (op.name != name) continue;
    op.reader = reader;
    for (const Form& kernel : kernels) {
      const auto row = std::find_if(op.forms.begin(), op.forms.end(), [&](const Form& form) {
        return form.name == kernel.name;
      });
      if (row == op.forms.end())
        throw std::logic_error(fmt::format("[{}] does not list '{}'", name, kernel.name));
      *row = kernel;
      row->place = Place::cuda;
      row->traces = false;
    }
  }
}

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {std::string(forms::kAuto)};
    for (const Op& op : ops()) {
      for (const Form& form : op.forms) {
        if (std::find(all.begin(), all.end(), form.name) == all.end()) all.emplace_back(form.name);
      }
    }
    return all;
  }();
  return names;
}

const Op& find_op(std::string_view name) {
  std::vector<std::string> names;
  for (const Op& op : ops()) {
    if (op.name == name) return op;
    names.emplace_back(op.name);
  }
  throw UsageError("{}", unknown("op", name, names));
}

}  // namespace horner
