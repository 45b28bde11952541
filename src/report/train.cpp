#include "report/train.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/number.h"
#include "report/progress.h"
#include "report/terminal.h"
#include "train/expect.h"

namespace horner {
namespace {

// What matters most comes first: a terminal of 80 columns cuts the line after the speed.
std::string line(const TrainTick& t, const std::string& metric) {
  std::string text = fmt::format(
      "step {}/{}  {} left  loss {:.4f}  {}  {} tok/s  lr {:.2e}  |g| {:.2f}  {} so far",
      t.step,
      t.steps,
      short_time(t.left),
      t.loss,
      short_bytes(t.memory),
      short_count(t.tokens_per_second),
      t.lr,
      t.gradient_norm,
      short_time(t.elapsed)
  );
  if (!std::isnan(t.mfu)) text += fmt::format("  {:.0f} % MFU", 100 * t.mfu);
  if (t.data_wait >= 0.01) text += fmt::format("  {:.0f} % data wait", 100 * t.data_wait);
  if (!std::isnan(t.valid)) text += fmt::format("  valid {} {:.4f}", metric, t.valid);
  return text;
}

}  // namespace

TrainProgress::TrainProgress(std::string metric)
    : terminal_(isatty(STDERR_FILENO) != 0), metric_(std::move(metric)) {}

TrainProgress::~TrainProgress() {
  if (terminal_) show_status("\r\033[K");
}

void TrainProgress::show(const TrainTick& t) {
  if (!t.note.empty()) {
    show_status(fmt::format("{}Note: {}\n", terminal_ ? "\r\033[K" : "", t.note));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  const bool edge = t.step == t.steps || shown_.time_since_epoch().count() == 0;
  if (now - shown_ < pause && !edge) return;
  shown_ = now;
  if (!terminal_) {
    show_status(line(t, metric_) + "\n");
    return;
  }
  const auto bars = size_t(10 * t.step / std::max<int64_t>(1, t.steps));
  show_line(fmt::format("[{:#<{}}{:.<{}}] {}", "", bars, "", 10 - bars, line(t, metric_)));
}

std::string train_summary(const TrainResult& r, const Task& task) {
  const bool numbers = r.test.values.contains("mse");  // else losses are logarithms
  const std::string unit = r.metric == "loss" && !numbers ? ", nats" : "";
  Table table{{"", r.metric + unit, "loss, nats", "examples", ""}, {}};
  const auto number = [](const Scores& s, const std::string& name) {
    const auto found = s.values.find(name);
    return found == s.values.end() ? std::string("-") : fmt::format("{:.4f}", found->second);
  };
  const auto add = [&](const std::string& name, const Scores& s) {
    table.rows.push_back(
        {name, number(s, r.metric), number(s, "loss"), std::to_string(s.examples), ""}
    );
  };
  add("test", r.test);
  add("valid", r.valid);
  for (const auto& [T, scores] : r.lengths) add(fmt::format("test at T = {}", T), scores);
  for (const Baseline& b : task.baselines())
    table.rows.push_back({b.name, fmt::format("{:.4f}", b.score), "", "", b.meaning});
  if (r.metric == "loss" || numbers) {  // twice the same
    table.head.erase(table.head.begin() + 2);
    for (auto& row : table.rows) row.erase(row.begin() + 2);
  }
  std::string text = fitted(table);
  for (const std::string& note : r.notes) text += fmt::format("\nNote: {}.", note);
  for (const Answer& a : answers(r))
    text += fmt::format(
        "\nExpected {}: {} ({:.4f}).", a.expected, a.holds ? "holds" : "does not hold", a.measured
    );
  text += fmt::format(
      "\n{} parameters, {} of state per sequence, {} FLOP per token.\n",
      short_count(double(r.parameters)),
      short_bytes(double(r.state_bytes)),
      short_count(r.flops_per_token)
  );
  text += fmt::format(
      "{} steps{}, {} tokens in {} ({} tok/s), {} at most.\n{} holds the run.\n",
      r.steps,
      r.stopped.empty() ? "" : fmt::format(" (stopped: {})", r.stopped),
      short_count(double(r.tokens)),
      short_time(r.seconds),
      short_count(r.tokens_per_second),
      short_bytes(r.peak_bytes),
      r.folder
  );
  return text;
}

}  // namespace horner
