#include "lab/papers/papers.h"

namespace horner {
namespace {

constexpr int64_t kShort = 4, kMiddle = 16, kLong = 64;  // 128, 512 and 2048 by 32

TrainOptions hybrid(TrainOptions o, int64_t window) {
  o.model.pattern = {fmt::format("window:window={}", window), "mlstm"};
  return o;
}

// `window`, or the short one, as chance has it.
TrainOptions stochastic(TrainOptions o, int64_t window) {
  o = hybrid(o, window);
  o.train.stochastic_window = true;
  o.train.window.short_window = kShort;
  o.train.window.long_window = window;
  return o;
}

std::vector<Arm> with_windows(const TrainOptions& base) {
  TrainOptions pure = base;
  pure.model.pattern = {"mlstm"};
  return {
      {"short window", hybrid(base, kShort)},
      {"middle window", hybrid(base, kMiddle)},
      {"long window", hybrid(base, kLong)},
      {"stochastic", stochastic(base, kLong)},
      {"pure mLSTM", pure}};
}

// Four layers: with two, attention alone cannot look up what followed a key. The long window is half
// the training length, so that some needles lie beyond it.
std::vector<Arm> needles(Effort scale) {
  TrainOptions o = track(scale, "needle:T=32,m=1", "mlstm", 128);
  o.model.layers = 4;
  o.optim.lr = 1e-3;
  o.train.batch = 64;
  o.schedule.steps = 1500;
  o.schedule.warmup = 75;
  return {
      {"short window", hybrid(o, kShort)},
      {"long window", hybrid(o, kMiddle)},
      {"stochastic", stochastic(o, kMiddle)}};
}

std::vector<Arm> text(Effort scale) { return with_windows(language(scale, {"mlstm"})); }

}  // namespace

Paper swax_paper() {
  using E = Expectation;
  return {
      "swax",
      "2509.24552",
      "Short windows help long-term memory: sliding windows, xLSTM and stochastic windows",
      {
          {"text",
           "Loss: stochastic < long window < short window < pure mLSTM",
           "bytes of text, 128 at a time, windows 4, 16 and 64; the stochastic one of 4 or 64",
           "test/loss",
           {{E::above, "long window", "middle window"},
            {E::above, "middle window", "short window"},
            {E::above, "short window", "pure mLSTM"},
            {E::above, "stochastic", "long window"}},
           3,
           text},
          {"needle",
           "Far beyond the window a short window recalls better than a long one, and a stochastic "
           "one as well as the short",
           "a needle among 32 tokens in training, among 128 in the test, windows 4 and 16",
           "128/accuracy",
           {{E::above, "short window", "long window"}, {E::above, "stochastic", "long window"}},
           3,
           needles},
      }};
}

}  // namespace horner
