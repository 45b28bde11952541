#include "lab/verify.h"

#include "core/check.h"
#include "core/device.h"
#include "core/options.h"

namespace horner {
namespace {

Dims checked_dims(const VerifyOptions& o) {
  for (const auto& [name, value] :
       {std::pair{"B", o.B}, {"T", o.T}, {"H", o.H}, {"G", o.G}, {"K", o.K}, {"V", o.V}}) {
    HORNER_CHECK(value >= 1, "{} must be at least 1, got {}", name, value);
  }
  HORNER_CHECK(o.H % o.G == 0, "H must be a multiple of G, got H = {} and G = {}", o.H, o.G);
  return {.B = o.B, .T = o.T, .H = o.H, .G = o.G, .K = o.K, .V = o.V};
}

}  // namespace

VerifyReport verify(const VerifyOptions& options, const Tell& tell) {
  const Dims dims = checked_dims(options);
  const at::Device device = find_device(options.device);
  std::vector<const Op*> chosen;
  for (const std::string& name : options.op) chosen.push_back(&find_op(name));
  if (chosen.empty()) {
    for (const Op& op : ops()) chosen.push_back(&op);
  }
  size_t total = 0, done = 0;
  for (const Op* op : chosen) total += op->variants.size() * contract().size();

  VerifyReport report{options, describe_device(device), {}};
  for (const Op* op : chosen) {
    for (const Variant& variant : op->variants) {
      for (const Property& property : contract()) {
        tell(done++, total, op->name, property.name);
        VerifyRow row{op, variant.name, &property, {}, {}};
        try {
          row.measure = property.measure({*op, variant, dims, device, uint64_t(options.seed)});
        } catch (const std::exception& error) {
          row.failure = error.what();
          row.failure = row.failure.substr(0, row.failure.find('\n'));
        }
        if (row.measure.applies) report.rows.push_back(row);
      }
    }
  }
  return report;
}

size_t VerifyReport::failed() const {
  return size_t(std::count_if(rows.begin(), rows.end(), [](const VerifyRow& row) {
    return !row.holds();
  }));
}

Json VerifyReport::json() const {
  Json list = Json::array();
  for (const VerifyRow& row : rows) {
    list.push_back(
        {{"op", row.op->name},
         {"variant", row.variant},
         {"property", row.property->name},
         {"error", row.measure.error},
         {"bound", row.measure.bound},
         {"holds", row.holds()}}
    );
    if (!row.failure.empty()) list.back()["failure"] = row.failure;
  }
  return {
      {"device", device},
      {"options", to_json(options)},
      {"checks", rows.size()},
      {"failed", failed()},
      {"rows", list}};
}

}  // namespace horner
