#include "lab/compare/budget.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"

namespace horner {
namespace {

struct Candidate {
  MixerSpec mixer;
  int64_t D;
  double change;
};

// The values that are tried for a setting, by its name.
const std::map<std::string, std::vector<std::string>>& sizes() {
  static const std::map<std::string, std::vector<std::string>> map = {
      {"heads", {"1", "2", "4", "8", "16"}},
      {"expand_k", {"0.25", "0.5", "1", "2"}},
      {"expand_v", {"0.5", "1", "2"}},
      {"expand", {"1", "2", "4"}},
      {"state", {"8", "16", "32", "64", "128"}},
      {"head", {"16", "32", "64"}},
      {"key", {"8", "16", "32", "64"}},
      {"order", {"1", "2", "3", "4"}}};
  return map;
}

// The mixer with up to two more settings than the user gave. With three it would hardly be the same mixer.
std::vector<MixerSpec> choices(const MixerSpec& mixer) {
  std::vector<MixerSpec> list = {mixer};
  for (const Description& d : find_mixer(mixer.name).describe()) {
    const auto found = sizes().find(d.name);
    if (found == sizes().end() || mixer.find(d.name)) continue;
    const size_t before = list.size();
    for (const std::string& value : found->second) {
      if (std::stod(value) == std::stod(d.initial)) continue;
      for (size_t i = 0; i < before; ++i) {
        if (list[i].settings.size() >= mixer.settings.size() + 2) continue;
        list.push_back(list[i]);
        list.back().settings.push_back({d.name, value});
      }
    }
  }
  return list;
}

}  // namespace

Budget solve_budget(const std::string& mixer, int64_t D, double target, const CostOf& cost) {
  HORNER_CHECK(target > 0, "the reference costs nothing: there is no budget to match");
  const MixerSpec given = MixerSpec::parse(mixer);
  std::vector<int64_t> widths;
  for (int64_t d = std::max<int64_t>(8, D / 2); d <= 2 * D; ++d)
    if (d == D || d % 8 == 0) widths.push_back(d);
  // Sorted by the size of the change (a setting counts as much as a width changed by half), so the first candidate within 1 %
  // is the best.
  std::vector<Candidate> candidates;
  for (const MixerSpec& choice : choices(given)) {
    const auto changes = double(choice.settings.size() - given.settings.size());
    for (const int64_t d : widths)
      candidates.push_back({choice, d, changes + 2 * std::abs(std::log2(double(d) / double(D)))});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.change < b.change;
  });
  Budget best;
  best.target = target;
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) {
    double value;
    try {
      value = cost(c.mixer.text(), c.D);
    } catch (const UsageError&) {
      continue;  // heads that do not divide D, and the like
    }
    ++best.tried;
    if (value <= 0) continue;
    const double off = std::abs(std::log(value / target));
    if (off >= least) continue;
    least = off;
    best.mixer = c.mixer.text();
    best.D = c.D;
    best.cost = value;
    if (off <= 0.01) break;
  }
  HORNER_CHECK(best.D > 0, "{}: no width from {} to {} can be made", mixer, D / 2, 2 * D);
  return best;
}

}  // namespace horner
