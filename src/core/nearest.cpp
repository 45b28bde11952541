#include "core/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace horner {
namespace {

constexpr size_t kShort = 160;  // letters of candidates that still make a readable line

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const int rows = static_cast<int>(a.size()) + 1, columns = static_cast<int>(b.size()) + 1;
  std::vector<std::vector<int>> d(rows, std::vector<int>(columns));
  for (int i = 0; i < rows; ++i) d[i][0] = i;
  for (int j = 0; j < columns; ++j) d[0][j] = j;
  for (int i = 1; i < rows; ++i) {
    for (int j = 1; j < columns; ++j) {
      const int change = a[i - 1] != b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[rows - 1][columns - 1];
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  int limit = std::max<int>(1, static_cast<int>(name.size()) / 3);
  std::string best;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    if (distance < limit || (distance == limit && best.empty())) {
      limit = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown(
    std::string_view kind, std::string_view name, const std::vector<std::string>& candidates
) {
  const std::string near = nearest(name, candidates);
  if (!near.empty()) return fmt::format("unknown {} '{}'; did you mean '{}'?", kind, name, near);
  const std::string known = fmt::format("{}", fmt::join(candidates, ", "));
  if (known.empty() || known.size() > kShort) return fmt::format("unknown {} '{}'", kind, name);
  return fmt::format("unknown {} '{}'; known: {}", kind, name, known);
}

}  // namespace horner
