#include "lab/reproduce/papers/papers.h"
#include "lab/theory/theory.h"

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

}  // namespace

Paper measure_paper() {
  const auto claim = [](std::string name, std::string says, auto measure) {
    return Claim{
        std::move(name),
        std::move(says),
        "closed forms, `horner theory`",
        "value",
        {},
        1,
        nullptr,
        measure};
  };
  return {
      "measure",
      "2512.11784",
      "Softmax as linear attention in the large-prompt regime",
      {
          claim(
              "concentration",
              "Outputs and gradients of softmax approach their linear limit as 1/sqrt(L), with a "
              "known constant",
              [](const Trial& t, Finding& f) { part("concentration", t.scale, f); }
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
      }};
}

}  // namespace horner
