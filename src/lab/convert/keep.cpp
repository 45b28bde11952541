// What --keep says.
#include <cmath>

#include "core/check.h"
#include "core/number.h"
#include "lab/convert/plan.h"

namespace horner {
namespace {

double number_in(const std::string& text, const std::string& given) {
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  HORNER_CHECK(
      end == text.size() && std::isfinite(value) && value >= 0,
      "keep: '{}' must be a number of at least 0 in '{}'",
      text,
      given
  );
  return value;
}

double bytes_in(const std::string& text, const std::string& given) {
  const size_t unit = text.find_first_not_of("0123456789.");
  HORNER_CHECK(unit != 0, "keep: a size such as 2MB is wanted in '{}'", given);
  if (unit == std::string::npos) return number_in(text, given);
  const std::string name = text.substr(unit);
  for (const auto& [known, bytes] :
       {std::pair{"B", 1.0},
        {"KB", 1e3},
        {"MB", 1e6},
        {"GB", 1e9},
        {"KiB", 1024.0},
        {"MiB", 1048576.0},
        {"GiB", 1073741824.0}}) {
    if (name == known) return number_in(text.substr(0, unit), given) * bytes;
  }
  throw UsageError("keep: '{}' is no unit of bytes; KB, MB, GB, KiB, MiB and GiB are", name);
}

int64_t whole(const std::string& text, const std::string& given) {
  const std::optional<int64_t> value = whole_number(text);
  HORNER_CHECK(value, "keep: '{}' must be a whole number in '{}'", text, given);
  return *value;
}

}  // namespace

Keep parse_keep(const std::string& text, const ModelOptions& teacher) {
  const int64_t L = teacher.layers;
  Keep keep{Kept(size_t(L), false), {}, {}};
  bool any = false;
  for (int64_t l = 0; l < L; ++l) {
    keep.kept[size_t(l)] = !is_replaceable(mixer_at(teacher, l));
    any = any || !keep.kept[size_t(l)];
  }
  if (!any)
    throw DataError("no layer is softmax attention over all past tokens: nothing to convert");
  if (text.starts_with("every=")) {
    const int64_t n = whole(text.substr(6), text);
    HORNER_CHECK(n >= 1, "keep: every must be at least 1, got {}", n);
    for (int64_t l = n - 1; l < L; l += n) keep.kept[size_t(l)] = true;
  } else if (text.starts_with("layers=")) {
    for (size_t at = 7; at <= text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      const int64_t l = whole(text.substr(at, end - at), text);
      HORNER_CHECK(l < L, "keep: layer {} is not there; layers are 0 .. {}", l, L - 1);
      keep.kept[size_t(l)] = true;
      at = end + 1;
    }
  } else if (text.starts_with("plan:kl=")) {
    keep.kl = number_in(text.substr(8), text);
  } else if (text.starts_with("plan:state=")) {
    keep.state = bytes_in(text.substr(11), text);
  } else {
    HORNER_CHECK(
        text.empty(),
        "keep must be every=N, layers=A,B, plan:kl=X or plan:state=SIZE, got '{}'",
        text
    );
  }
  return keep;
}

}  // namespace horner
