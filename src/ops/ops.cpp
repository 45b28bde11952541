// THE list of ops. Nothing else knows their names: commands, reports, Python, bench and tests walk it.
#include "core/check.h"
#include "core/nearest.h"
#include "ops/attention/attention.h"
#include "ops/delta/delta.h"
#include "ops/linear/linear.h"
#include "ops/op.h"
#include "ops/power/power.h"
#include "ops/scan/scan.h"

namespace horner {

const std::vector<Op>& ops() {
  static const std::vector<Op> list = {
      attention_op(), power_op(), linear_op(), delta_op(), scan_op()};
  return list;
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
