#include "report/train.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/number.h"
#include "report/table.h"
#include "train/expect.h"

namespace horner {
namespace {

std::string line(const TrainTick& t) {
  std::string text = fmt::format(
      "step {}/{}  loss {:.4f}  lr {:.2e}  |g| {:.2f}  {} tok/s  {}  {}<{}",
      t.step,
      t.steps,
      t.loss,
      t.lr,
      t.gradient_norm,
      short_count(t.tokens_per_second),
      short_bytes(t.memory),
      short_time(t.elapsed),
      short_time(t.left)
  );
  if (!std::isnan(t.mfu)) text += fmt::format("  {:.0f} % MFU", 100 * t.mfu);
  if (t.data_wait >= 0.01) text += fmt::format("  {:.0f} % data wait", 100 * t.data_wait);
  if (!std::isnan(t.valid)) text += fmt::format("  valid {:.4f}", t.valid);
  return text;
}

}  // namespace

TrainProgress::TrainProgress() : terminal_(isatty(STDERR_FILENO) != 0) {}

TrainProgress::~TrainProgress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void TrainProgress::show(const TrainTick& t) {
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  const bool edge = t.step == t.steps || shown_.time_since_epoch().count() == 0;
  if (now - shown_ < pause && !edge) return;
  shown_ = now;
  if (!terminal_) {
    fmt::print(stderr, "{}\n", line(t));
    return;
  }
  const auto bars = size_t(20 * t.step / std::max<int64_t>(1, t.steps));
  fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {}", "", bars, "", 20 - bars, line(t));
  std::fflush(stderr);
}

std::string train_summary(const TrainResult& r, const Task& task) {
  Table table{{"", r.metric, "loss", "examples", ""}, {}};
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
  std::string text = table.text();
  for (const Answer& a : answers(r))
    text += fmt::format(
        "\nExpected {}: {} ({:.4f}).", a.expected, a.holds ? "holds" : "does not hold", a.measured
    );
  text += fmt::format(
      "\n{} parameters, {} of state per sequence, {}FLOP per token.\n",
      short_count(double(r.parameters)),
      short_bytes(double(r.state_bytes)),
      short_count(r.flops_per_token)
  );
  text += fmt::format(
      "{} steps{}, {} tokens in {} ({} tok/s), {} at most.\n{}\n",
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
