#include "lab/verify/verify.h"

#include "core/check.h"
#include "core/device.h"
#include "core/options.h"
#include "core/spec.h"
#include "mixers/contract.h"

namespace horner {
namespace {

constexpr int64_t kMostPairs = 1 << 26, kMostDim = 1024;

Dims checked_dims(const VerifyOptions& o) {
  for (const auto& [name, value] :
       {std::pair{"B", o.B}, {"T", o.T}, {"H", o.H}, {"G", o.G}, {"K", o.K}, {"V", o.V}}) {
    HORNER_CHECK(value >= 1, "{} must be at least 1, got {}", name, value);
  }
  const double pairs = double(o.B) * double(o.H) * double(o.T) * double(o.T);
  HORNER_CHECK(
      pairs <= kMostPairs,
      "B H T T must be at most {}, since forms are compared on all pairs; got {:.3g}",
      kMostPairs,
      pairs
  );
  for (const auto& [name, value] : {std::pair{"K", o.K}, {"V", o.V}})
    HORNER_CHECK(value <= kMostDim, "{} must be at most {}, got {}", name, kMostDim, value);
  HORNER_CHECK(o.H % o.G == 0, "H must be a multiple of G, got H = {} and G = {}", o.H, o.G);
  return {.B = o.B, .T = o.T, .H = o.H, .G = o.G, .K = o.K, .V = o.V};
}

struct Check {
  VerifyRow row;
  std::function<Measure()> measure;
};

// The variant, and the shape if it is not the user's.
std::string described(const Case& c, const Dims& asked) {
  const Dims& d = c.dims;
  if (d.K == asked.K && d.V == asked.V) return c.variant.name;
  return fmt::format("{}, T={} K={} V={}", c.variant.name, d.T, d.K, d.V);
}

std::vector<Check> op_checks(const VerifyOptions& options) {
  const Dims dims = checked_dims(options);
  const at::Device device = find_device(options.device);
  std::vector<const Op*> chosen;
  for (const std::string& name : options.op) chosen.push_back(&find_op(name));
  if (chosen.empty()) {
    for (const Op& op : ops()) chosen.push_back(&op);
  }
  std::vector<Check> list;
  for (const Op* op : chosen) {
    for (const Form& form : op->forms) {
      if (form.place == (device.is_cpu() ? Place::cuda : Place::cpu)) continue;
      for (const Case& c : cases_of(*op, form, dims, device, uint64_t(options.seed))) {
        const std::string where = described(c, dims);
        for (const Property& p : contract()) {
          if (p.applies != nullptr && !p.applies(c)) continue;
          list.push_back({{op->name, form.name, where, p.name, p.meaning, {}, {}}, [=] {
                            return measured(p, c);
                          }});
        }
      }
    }
  }
  return list;
}

std::vector<Check> mixer_checks(const VerifyOptions& options) {
  const Dims dims = checked_dims(options);
  HORNER_CHECK(
      dims.B >= 2 && dims.T >= 3, "mixers are verified with B of at least 2 and T of at least 3"
  );
  HORNER_CHECK(
      options.D >= 16 && options.D % 16 == 0, "D must be a multiple of 16, got {}", options.D
  );
  HORNER_CHECK(options.D <= kMostDim, "D must be at most {}, got {}", kMostDim, options.D);
  const at::Device device = find_device(options.device);
  struct Chosen {
    const MixerType* type;
    std::vector<std::string> variants;
  };
  std::vector<Chosen> chosen;
  for (const std::string& text : whole_specs(options.mixer)) {  // with settings: those alone
    const MixerSpec spec = MixerSpec::parse(text);
    const MixerType& type = find_mixer(spec.name);
    const bool own = !spec.settings.empty();
    chosen.push_back({&type, own ? std::vector{spec.settings_text()} : type.variants});
  }
  if (chosen.empty()) {
    for (const MixerType& type : mixers()) chosen.push_back({&type, type.variants});
  }
  std::vector<Check> list;
  for (const auto& [type, variants] : chosen) {
    for (const std::string& variant : variants) {
      const MixerCase c{*type, variant, dims.B, dims.T, options.D, device, uint64_t(options.seed)};
      for (const MixerProperty& p : mixer_contract()) {
        list.push_back({{type->name, {}, variant, p.name, p.meaning, {}, {}}, [c, p] {
                          return p.measure(c);
                        }});
      }
    }
  }
  return list;
}

}  // namespace

VerifyReport verify(const VerifyOptions& options, const Tell& tell) {
  const std::vector<Check> checks =
      options.mixers || !options.mixer.empty() ? mixer_checks(options) : op_checks(options);
  VerifyReport report{options, describe_device(find_device(options.device)), {}};
  for (const Check& check : checks) {
    VerifyRow row = check.row;
    tell(size_t(&check - checks.data()), checks.size(), row.subject, row.property);
    try {
      row.measure = check.measure();
    } catch (const std::bad_alloc&) {
      throw;  // says nothing about the property
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      row.failure = error.what();
      if (row.failure.find("DefaultCPUAllocator") != row.failure.npos) throw;
      row.failure = row.failure.substr(0, row.failure.find('\n'));
    }
    if (row.measure.applies) report.rows.push_back(row);
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
        {{options.mixers || !options.mixer.empty() ? "mixer" : "op", row.subject},
         {"form", row.form},
         {"variant", row.variant},
         {"property", row.property},
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
