#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

// The paper's way from linear attention to 2Mamba. Rows with an output norm weigh by x, have one norm over all heads and
// SiLU on
// q and k only; the plain row is relu with the sum.
const std::string kRow = "two_mamba:kernel=linear,conv_activation=silu_qk";

std::vector<Arm> arms_of(
    Effort scale, const std::vector<std::pair<std::string, std::string>>& list
) {
  std::vector<Arm> arms;
  for (const auto& [label, mixer] : list) {
    arms.push_back({label, language(scale, {mixer})});
    arms.back().options.model.init =
        "torch_linear";  // as their trainer, which is the Taylor paper's
  }
  return arms;
}

std::vector<Arm> parts(Effort scale) {
  return arms_of(
      scale,
      {{"linear", kRow + ",conv=0,decay=false,step=false"},
       {"linear + conv", kRow + ",decay=false,step=false"},
       {"linear + decay", kRow + ",conv=0,step=false"},
       {"Mamba-2S", "two_mamba:kernel=linear"},
       {"2Mamba", "two_mamba"},
       {"2Mamba-E", "two_mamba:kernel=exp"},
       {"softmax", "softmax"}}
  );
}

// The other rows of the paper's table; their runs beside those of `parts` make it whole.
std::vector<Arm> table(Effort scale) {
  std::vector<Arm> arms = parts(scale);
  for (const Arm& arm : arms_of(
           scale,
           {{"linear, relu, sum", "linear:feature=relu"},
            {"linear + conv + decay", kRow + ",step=false"},
            {"Mamba-2", "mamba2"},
            {"linear + conv 3", kRow + ",conv=3,decay=false,step=false"},
            {"linear + conv 4", kRow + ",conv=4,decay=false,step=false"},
            {"2Mamba, conv 4", "two_mamba:conv=4"}}
       ))
    arms.push_back(arm);
  return arms;
}

}  // namespace

Paper two_mamba_paper() {
  using E = Expectation;
  Claim claim{
      "parts",
      "A short convolution and a decay each help linear attention much; squared with both it is at "
      "softmax's level, with the exponential below it",
      "bytes of text",
      "test/loss",
      {{E::above, "linear + conv", "linear"},
       {E::above, "linear + decay", "linear"},
       {E::above, "2Mamba", "Mamba-2S"},
       {E::above, "2Mamba", "softmax", -0.02},
       {E::above, "2Mamba-E", "softmax"}},
      kText,
      parts};
  claim.revision = 2;
  claim.mended =
      "the convolution had no bias, the rows of the build-up weighed by 1 + x, normed each head "
      "and "
      "had no SiLU, and another start than the authors' was used";
  claim.settings = {
      {"task", "FineWeb, 2048 tokens"},
      {"data", "100,000 steps of 32"},
      {"model", "Llama 2: 20 layers, D = 1024, K = 64, 300 M"},
      {"start", "torch's matrices, embedding N(0, 0.02): our torch_linear"},
      {"optimiser", "AdamW (0.9, 0.999), weight decay 0.01, no clip"},
      {"learning rates", "1e-4"},
      {"seeds", "1"},
      {"mixer",
       "convolution 2 with a bias; the build-up has SiLU on q and k only and one norm over all "
       "heads"}};
  claim.prints =
      "test loss: linear 3.134, + conv 2.928, + decay 2.884, Mamba-2S 2.760, 2Mamba 2.727, softmax "
      "2.731";
  claim.printed = {
      {"linear", "3.134"},
      {"linear + conv", "2.928 (SiLU 2.904)"},
      {"linear + decay", "2.884"},
      {"Mamba-2S", "2.760"},
      {"2Mamba", "2.727"},
      {"2Mamba-E", "2.590 (medium; softmax 2.606)"},
      {"softmax", "2.731"}};
  claim.headline = 3;
  Claim build_up = claim;
  build_up.name = "build-up";
  build_up.says =
      "The paper's table from linear attention to 2Mamba, with Mamba-2 and wider convolutions";
  build_up.setting = "bytes of text, the runs of `parts` and six more arms";
  build_up.expects = {};
  build_up.arms = table;
  build_up.printed.insert(
      {{"linear, relu, sum", "3.028"},
       {"linear + conv 3", "2.910 (SiLU 2.893)"},
       {"linear + conv 4", "2.902 (SiLU 2.888)"},
       {"linear + conv + decay", "2.775"},
       {"Mamba-2", "2.879"}}
  );
  build_up.revision = 1;
  build_up.mended = "";
  build_up.headline = 0;
  return {
      "two-mamba",
      "2602.17363",
      "2Mamba: order 2, decay and a short convolution",
      {claim, build_up},
      "bytes of text with models of 3 M parameters"};
}

}  // namespace horner
