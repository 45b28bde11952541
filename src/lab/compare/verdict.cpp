#include "lab/compare/verdict.h"

#include <algorithm>
#include <cmath>

#include "core/number.h"

namespace horner {
namespace {

const CompareRow* find_row(const CompareResult& r, const std::string& mixer) {
  for (const CompareRow& row : r.rows) {
    if (row.mixer == mixer) return &row;
  }
  return nullptr;
}

std::string signed_number(double x) { return fmt::format("{:+.3f}", x == 0 ? 0.0 : x); }

// "-0.58 ± 0.07"; with one seed the bootstrap's interval.
std::string amount(const Difference& d) {
  if (d.seeds.n >= 2) return fmt::format("{} ± {:.3f}", signed_number(d.seeds.mean), d.seeds.half);
  return fmt::format(
      "{}, {} .. {} over test examples",
      signed_number(d.seeds.mean),
      signed_number(d.examples.low),
      signed_number(d.examples.high)
  );
}

std::string joined(const std::vector<std::string>& parts) {
  if (parts.size() <= 1) return parts.empty() ? "" : parts[0];
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string state_of(const CompareRow& row) {
  return row.state_bytes > 0 ? ", " + short_bytes(double(row.state_bytes)) + " of state" : "";
}

// The best baseline that needs no learning, if the reference does not beat it.
const Baseline* unbeaten(const CompareResult& r, const CompareRow& row) {
  const Baseline* best = nullptr;
  for (const Baseline& b : r.baselines) {
    const bool beaten = r.smaller ? row.score.mean < b.score : row.score.mean > b.score;
    if (!beaten && (best == nullptr || (b.score > best->score) != r.smaller)) best = &b;
  }
  return best;
}

// The smallest state that shows no difference, or is better.
std::string smallest_state(const CompareResult& r, const CompareRow& reference) {
  const CompareRow* least = nullptr;
  for (const Difference& d : r.differences) {
    const CompareRow* row = find_row(r, d.a);
    const bool worse = d.shown() && (r.smaller ? d.seeds.mean > 0 : d.seeds.mean < 0);
    if (worse || row->state_bytes <= 0) continue;
    if (least == nullptr || row->state_bytes < least->state_bytes) least = row;
  }
  if (least == nullptr || least->state_bytes >= reference.state_bytes) return "";
  return fmt::format(
      " The smallest state that keeps up with {} is that of {}: {}, {:.0f} % of {}.",
      reference.mixer,
      least->mixer,
      short_bytes(double(least->state_bytes)),
      100 * double(least->state_bytes) / double(reference.state_bytes),
      short_bytes(double(reference.state_bytes))
  );
}

}  // namespace

std::string verdict(const CompareResult& r) {
  const CompareRow* reference = find_row(r, r.reference);
  if (reference == nullptr) return "No run finished: nothing can be said.";
  std::string text = fmt::format(
      "On {} over {}, {} reaches {} {:.3f}{}.",
      r.options.task,
      r.options.seeds == 1 ? "one seed" : fmt::format("{} paired seeds", r.options.seeds),
      reference->mixer,
      r.metric,
      reference->score.mean,
      state_of(*reference)
  );
  std::vector<std::string> same, better, worse;
  for (const Difference& d : r.differences) {
    const std::string item = fmt::format("{} ({}{})", d.a, amount(d), state_of(*find_row(r, d.a)));
    if (!d.shown()) {
      same.push_back(item);
    } else if ((d.seeds.mean < 0) == r.smaller) {
      better.push_back(item);
    } else {
      worse.push_back(item);
    }
  }
  const std::string& name = reference->mixer;
  if (!better.empty()) text += fmt::format(" Better than {}: {}.", name, joined(better));
  if (!same.empty()) text += fmt::format(" No difference to {} shown: {}.", name, joined(same));
  if (!worse.empty()) text += fmt::format(" Worse than {}: {}.", name, joined(worse));
  if (const Baseline* b = unbeaten(r, *reference))
    return text + fmt::format(
                      " But {} itself does not beat \"{}\" ({:.3f}: {}), so nothing is shown about "
                      "the mixers: "
                      "train longer, or make the task easier.",
                      name,
                      b->name,
                      b->score,
                      b->meaning
                  );
  return text + smallest_state(r, *reference);
}

std::vector<std::string> warnings(const CompareResult& r) {
  std::vector<std::string> list;
  for (const CompareRun& run : r.runs) {
    if (!run.failure.empty())
      list.push_back(
          fmt::format("Failed: {}, lr {:g}, seed {}: {}", run.mixer, run.lr, run.seed, run.failure)
      );
  }
  for (const CompareRow& row : r.rows) {
    if (!row.lr_note.empty())
      list.push_back(fmt::format(
          "{}: the best learning rate {:g} is the {}; a wider --lr_grid may do better.",
          row.mixer,
          row.lr,
          row.lr_note
      ));
    if (std::abs(row.budget_mismatch) > 0.01)
      list.push_back(fmt::format(
          "{}: {} differs by {:+.1f} % from that of {}; no setting was nearer.",
          row.settings,
          r.options.iso,
          100 * row.budget_mismatch,
          r.options.mixers[0]
      ));
  }
  for (const Difference& d : r.differences) {
    const double scale = std::max(std::abs(find_row(r, r.reference)->score.mean), 1e-9);
    if (!d.shown() && d.seeds.n >= 2 && d.seeds.half > 0.1 * scale)
      list.push_back(fmt::format(
          "{}: no difference is shown, but the interval is ± {:.3f}; more seeds would tell.",
          d.a,
          d.seeds.half
      ));
  }
  if (r.options.seeds == 1)
    list.push_back("One seed: nothing is known of how much seeds differ. At least 3 are usual.");
  for (const CompareRow& row : r.rows) {
    if (row.scores.empty() || row.mixer == r.reference) continue;
    if (const Baseline* b = unbeaten(r, row))
      list.push_back(fmt::format(
          "{} does not beat \"{}\" ({:.3f}): {}.", row.mixer, b->name, b->score, b->meaning
      ));
  }
  return list;
}

}  // namespace horner
