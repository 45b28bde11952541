#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

// 128, 512 and 2048 by 32, at scale gpu by 8.
struct Windows {
  int64_t least, middle, most;
};
Windows windows(Effort scale) {
  return scale == Effort::gpu ? Windows{16, 64, 256} : Windows{4, 16, 64};
}

TrainOptions hybrid(TrainOptions o, int64_t window) {
  o.model.pattern = {fmt::format("window:window={}", window), "mlstm"};
  return o;
}

// One of the two windows, at random.
TrainOptions stochastic(TrainOptions o, int64_t least, int64_t most) {
  o = hybrid(o, most);
  o.train.stochastic_window = true;
  o.train.window.short_window = least;
  o.train.window.long_window = most;
  return o;
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
  const Windows w = windows(Effort::cpu);
  return {
      {"short window", hybrid(o, w.least)},
      {"long window", hybrid(o, w.middle)},
      {"stochastic", stochastic(o, w.least, w.middle)}};
}

std::vector<Arm> text(Effort scale) {
  const TrainOptions pure = language(scale, {"mlstm"});
  const Windows w = windows(scale);
  return {
      {"short window", hybrid(pure, w.least)},
      {"middle window", hybrid(pure, w.middle)},
      {"long window", hybrid(pure, w.most)},
      {"stochastic", stochastic(pure, w.least, w.most)},
      {"pure mLSTM", pure}};
}

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
           "bytes of text, windows 4, 16 and 64, at scale gpu 16, 64 and 256; the stochastic one "
           "the shortest or the longest",
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
           "test_T128/accuracy",
           {{E::above, "short window", "long window"}, {E::above, "stochastic", "long window"}},
           3,
           needles},
      }};
}

}  // namespace horner
