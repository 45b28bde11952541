#include "lab/compare/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/number.h"

namespace horner {
namespace {

const CompareRow* find_row(const CompareResult& r, const std::string& mixer) {
  for (const CompareRow& row : r.rows) {
    if (row.mixer == mixer) return &row;
  }
  return nullptr;
}

// "one seed", "3 paired seeds", "2 of 3 paired seeds (the others did not finish)".
std::string seeds_of(const CompareResult& r, const CompareRow& reference) {
  const auto finished = int64_t(reference.seeds.size());
  if (finished < r.options.seeds)
    return fmt::format(
        "{} of {} paired seeds (the others did not finish)", finished, r.options.seeds
    );
  return finished == 1 ? "one seed" : fmt::format("{} paired seeds", finished);
}

// "-0.58 ± 0.07"; with one seed the bootstrap's interval.
std::string amount(const Difference& d) {
  if (d.seeds.n >= 2)
    return fmt::format("{} ± {:.3f}", signed_number(d.seeds.mean, 3), d.seeds.half);
  return fmt::format(
      "{}, {} .. {} over test examples",
      signed_number(d.seeds.mean, 3),
      signed_number(d.examples.low, 3),
      signed_number(d.examples.high, 3)
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

// The best baseline, if the reference does not beat it.
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

// How a mixer gets other learning rates. A report of `horner train` has runs of one rate each, and no grid.
std::string other_rates(const CompareResult& r) {
  const double lr = r.rows[0].lr;
  return r.of_single_runs() ? fmt::format("train it again with --optim.lr {:g}", lr / 4)
                            : fmt::format("--lr_grid {:g},{:g},{:g}", lr / 4, lr / 2, lr);
}

// Where all mixers were trained with one learning rate: a worse one may only want another.
std::string shared_rate(const CompareResult& r) {
  std::vector<std::string> worse;
  for (const CompareRow& row : r.rows) {
    if (row.grid.size() != 1 || row.lr != r.rows[0].lr) return "";
  }
  for (const Difference& d : r.differences) {
    if (d.shown() && (d.seeds.mean > 0) == r.smaller) worse.push_back(d.a);
  }
  if (worse.empty()) return "";
  return fmt::format(
      "All mixers were trained with one learning rate, {:g}; {} may do better with another: {}.",
      r.rows[0].lr,
      joined(worse),
      other_rates(r)
  );
}

}  // namespace

std::string verdict(const CompareResult& r) {
  const CompareRow* reference = find_row(r, r.reference);
  if (reference == nullptr) return "No run finished: nothing can be said.";
  std::string text = fmt::format(
      "On {} over {}, {} has {} {:.3f}{}.",
      r.options.task,
      seeds_of(r, *reference),
      reference->mixer,
      r.metric,
      reference->score.mean,
      reference->state_bytes > 0
          ? fmt::format(" and keeps {} of state", short_bytes(double(reference->state_bytes)))
          : ""
  );
  std::vector<std::string> same, better, worse;
  for (const Difference& d : r.differences) {
    const bool fewer = d.seeds.n < int64_t(reference->seeds.size());
    const std::string n = d.seeds.n == 1 ? "one seed" : fmt::format("{} seeds", d.seeds.n);
    const std::string over = fewer ? " over " + n : "";
    const std::string item =
        fmt::format("{} ({}{}{})", d.a, amount(d), over, state_of(*find_row(r, d.a)));
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
  // What is said of several mixers is said once.
  std::map<std::string, std::vector<std::string>> edges, beaten;
  for (const CompareRow& row : r.rows) {
    if (!row.lr_note.empty())
      edges[row.lr_note].push_back(fmt::format("{} ({:g})", row.mixer, row.lr));
    if (row.scores.empty() || row.mixer == r.reference) continue;
    if (const Baseline* b = unbeaten(r, row))
      beaten[fmt::format("\"{}\" ({:.3f}): {}.", b->name, b->score, b->meaning)].push_back(row.mixer
      );
  }
  for (const CompareRun& run : r.runs) {
    if (!run.failure.empty())
      list.push_back(
          fmt::format("Failed: {}, lr {:g}, seed {}: {}", run.mixer, run.lr, run.seed, run.failure)
      );
  }
  for (const auto& [note, mixers] : edges)
    list.push_back(fmt::format(
        "{}: the best learning rate is the {}; {} may do better.",
        joined(mixers),
        note,
        r.of_single_runs() ? "one beyond it" : "a wider --lr_grid"
    ));
  for (const CompareRow& row : r.rows) {
    if (std::abs(row.budget_mismatch) > 0.01)
      list.push_back(fmt::format(
          "{}: {} differs by {} % from that of {}; no setting was nearer.",
          row.settings,
          r.options.iso,
          signed_number(100 * row.budget_mismatch, 1),
          r.options.mixers[0]
      ));
  }
  std::vector<std::string> wide;
  for (const Difference& d : r.differences) {
    const double scale = std::max(std::abs(find_row(r, r.reference)->score.mean), 1e-9);
    if (!d.shown() && d.seeds.n >= 2 && d.seeds.half > 0.1 * scale)
      wide.push_back(fmt::format("{} (± {:.3f})", d.a, d.seeds.half));
  }
  if (!wide.empty())
    list.push_back(fmt::format(
        "{}: no difference is shown, but the interval is wide; more seeds would tell.", joined(wide)
    ));
  const CompareRow* reference = find_row(r, r.reference);
  if (reference != nullptr && reference->seeds.size() == 1)
    list.push_back("One seed: nothing is known of how much seeds differ. At least 3 are usual.");
  for (const auto& [baseline, mixers] : beaten)
    list.push_back(fmt::format(
        "{} {} not beat {}", joined(mixers), mixers.size() == 1 ? "does" : "do", baseline
    ));
  if (const std::string note = shared_rate(r); !note.empty()) list.push_back(note);
  return list;
}

}  // namespace horner
