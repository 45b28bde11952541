#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

// `own`: further settings of the selective rotation, if the paper states them for the task.
std::vector<Arm> positions(
    const std::string& mixer,
    const std::function<TrainOptions(const std::string&)>& options,
    const std::string& own = ""
) {
  const std::string kind = mixer + ":position.kind=";
  return {
      {"none", options(kind + "none")},
      {"RoPE", options(kind + "rope,position.base=500000")},
      {"selective", options(kind + "selective_rope,position.base=500000" + own)}};
}

// Every angle has temperature 1 and no SiLU, rank 32, a bias that starts at 1 rad a token: the authors' recipe.
constexpr const char* kTracking =
    ",position.base=1,position.gate=none,position.activation=none,position.rank=32,position.bias="
    "true";
// The spectrum of random features up to 0.25, low rank, differences instead of a convolution.
constexpr const char* kCopying =
    ",position.increment=skip,position.rank=32,position.temperature=rfa,"
    "position.temperature_max=0.25";

// Scale gpu: 4 layers, K = 32 as in the paper, D = 128 (the paper: 512), strings of 2 to 16 letters (the paper: 64). Scale cpu:
// 2 layers, D = 64, 2 to 8. The paper sweeps gate and bias; with both it has an offset of position, as RoPE.
std::vector<Arm> copying(Effort scale) {
  const bool gpu = scale == Effort::gpu;
  const auto options = [&](const std::string& mixer) {
    TrainOptions o =
        track(scale, gpu ? "string_copy:T=128,M=16" : "string_copy:T=64,M=8", mixer, 35);
    o.model.layers = gpu ? 4 : 2;
    o.model.D = gpu ? 128 : 64;
    o.optim.lr = 2e-3;
    o.optim.beta2 = 0.999;
    o.optim.weight_decay = 0.1;
    o.schedule.kind = "linear";
    o.schedule.steps = gpu ? 2500 : 1500;
    o.schedule.warmup = o.schedule.steps / 10;
    o.train.batch = gpu ? 128 : 32;
    o.train.target = 0;  // the lengths of training are exact long before longer ones are
    o.eval.every = o.schedule.steps / 20;
    o.eval.lengths = gpu ? std::vector<int64_t>{67, 131, 259} : std::vector<int64_t>{35, 131};
    o.eval.batch = 50;
    return o;
  };
  const std::string kind = "gla:heads=4,expand_k=1,position.kind=";
  return {
      {"none", options(kind + "none")},
      {"RoPE", options(kind + "rope,position.base=500000")},
      {"selective",
       options(kind + "selective_rope" + kCopying + ",position.gate=head,position.bias=true")}};
}

// The paper's cell of 16 pairs in 256 tokens with its least width.
std::vector<Arm> mqar(Effort scale) {
  const Recall r = cheap(scale, {256, 16});
  return positions("gla", [&](const std::string& mixer) {
    TrainOptions o = zoology(scale, mixer, r.T, r.pairs);
    o.model.D = 64;
    return o;
  });
}

// The hardest of the paper's four: 64 pairs in 512 tokens.
std::vector<Arm> long_mqar(Effort scale) {
  const Recall r = cheap(scale, {512, 64});
  return positions("gla", [&](const std::string& mixer) {
    return zoology(scale, mixer, r.T, r.pairs);
  });
}

// 8 heads; RoPE and angles as in the language model. Only the tasks that the claim is about.
std::vector<Arm> mad_rows(Effort scale) {
  const std::string kind = "gla:heads=8,position.kind=";
  return mad_table(
      scale,
      {{"none", kind + "none"},
       {"RoPE", kind + "rope,position.base=500000"},
       {"selective", kind + "selective_rope,position.base=500000,position.gate=none"}},
      {"recall", "memorise"}
  );
}

// A third of the paper's width and heads, K = 32 as in the paper. On a CPU 32 elements, D = 64.
TrainOptions products(
    Effort scale, const std::string& group, int64_t k, int64_t longer, const std::string& mixer
) {
  const bool gpu = scale == Effort::gpu;
  TrainOptions o =
      track(scale, fmt::format("group:group={},k={}", group, gpu ? k : 32), mixer, longer);
  o.optim.lr = gpu ? 1e-3 : 2e-3;
  o.schedule.steps = gpu ? 3000 : 4000;
  o.schedule.warmup = o.schedule.steps / 20;
  o.eval.every = o.schedule.steps / 20;
  if (gpu) o.model.D = 128;
  o.train.target = 0;  // the length of training is exact long before four times it is
  return o;
}

std::vector<Arm> swaps(Effort scale) {
  const auto arm = [&](const std::string& position) {
    return products(
        scale, "Z2", 64, 256, "gla:heads=4,conv=4,expand_k=1,position.kind=" + position
    );
  };
  return {
      {"none", arm("none")},
      {"RoPE", arm("rope,position.base=500000")},
      {"selective", arm(std::string("selective_rope") + kTracking)}};
}

// As long as in the paper: DeltaNet alone solves 32 elements.
std::vector<Arm> control(Effort scale) {
  const auto arm = [&](const std::string& position) {
    TrainOptions o = products(scale, "Z3", 128, 256, "deltanet:heads=4,conv=4" + position);
    o.model.layers = 2;
    return o;
  };
  return {
      {"selective", arm(std::string(",position.kind=selective_rope") + kTracking)},
      {"DeltaNet alone", arm("")}};
}
std::vector<Arm> rotations(Effort scale) { return {control(scale)[0]}; }

// Of the language model: full rank, convolution with SiLU. Twice the steps of other texts, because angles are learned too.
Arm on_text(Effort scale, const std::string& label, const std::string& mixer) {
  TrainOptions o = language(scale, {mixer + ",position.base=500000"}, 1200);
  if (scale == Effort::gpu) o.schedule.steps *= 2, o.schedule.warmup *= 2;
  return {label, o};
}

std::vector<Arm> pair_on_text(Effort scale, const std::string& label, const std::string& mixer) {
  const std::string kind = mixer + "position.kind=";
  return {
      on_text(scale, label + " RoPE", kind + "rope"),
      on_text(scale, label + " selective", kind + "selective_rope,position.gate=none")};
}

std::vector<Arm> text(Effort scale) { return pair_on_text(scale, "gla", "gla:"); }

// FoX is softmax with a decay.
std::vector<Arm> text_of_others(Effort scale) {
  std::vector<Arm> arms = pair_on_text(scale, "FoX", "softmax:decay=softplus,");
  for (const Arm& arm : pair_on_text(scale, "GDN", "gated_deltanet:")) arms.push_back(arm);
  return arms;
}

std::vector<Arm> text_variants(Effort scale) {
  const std::string kind = "gla:position.kind=selective_rope,position.gate=";
  std::vector<Arm> arms = text(scale);
  arms.push_back(on_text(scale, "gla selective + gate", kind + "head"));
  arms.push_back(on_text(scale, "gla selective + bias", kind + "none,position.bias=true"));
  return arms;
}

}  // namespace

Paper selective_rope_paper() {
  using E = Expectation;
  const std::string angles =
      "the angles' weights started so that a step of Adam turned them 1.6 to 3.3 times too slowly, "
      "and "
      "torch's start overwrote their convolution";
  Claim recalled{
      "recall",
      "On MQAR selective rotation beats RoPE, which beats no position (GLA)",
      "T = 256, 16 pairs, D = 64, two layers of GLA (small scale: 64, 4)",
      "test/accuracy",
      {{E::above, "selective", "RoPE"}, {E::above, "RoPE", "none"}},
      {.seeds = 6, .most = 12, .rates = kFourRates, .chance = 1.0 / 16, .chance_cpu = 0.25},
      mqar};
  recalled.revision = 2;
  recalled.mended = angles + "; a dense convolution before GLA encoded order; one learning rate";
  recalled.settings = {
      {"task", "MQAR, (T, pairs) = (64, 4), (128, 8), (256, 16), (512, 64), vocabulary 8192"},
      {"data", "100,000 examples, 64 epochs"},
      {"model", "2 layers of GLA, D = 64 to 512, no MLP"},
      {"steps", "64 epochs of 512 to 128"},
      {"learning rates", "8 in [1e-4, 1e-2]"},
      {"seeds", "3"},
      {"mixer", "GLA; RoPE and the selective rotation with base 500,000"}};
  recalled.prints = "a figure: selective > RoPE > none";
  Claim longer = recalled;
  longer.name = "long recall";
  longer.setting = "T = 512, 64 pairs, two layers of GLA (small scale: 64, 4)";
  longer.protocol.chance = 1.0 / 64;
  longer.arms = long_mqar;
  longer.revision = 1;
  longer.mended = "";
  Claim mad{
      "mad",
      "On MAD's tasks rotation helps GLA much, in memorising most; the selective one is at RoPE's "
      "level, above it in recall",
      "two of MAD's tasks at their base difficulty, GLA with 8 heads",
      "test/accuracy",
      {{E::above, "memorise, RoPE", "memorise, none"},
       {E::above, "memorise, selective", "memorise, none"},
       {E::above, "recall, selective", "recall, none"},
       {E::above, "recall, selective", "recall, RoPE", -0.02}},
      {.seeds = 6, .most = 8, .rates = kRates, .chance = 0.125},
      mad_rows};
  mad.settings = mad_settings();
  mad.prints = "mean of six tasks: none 65.9, RoPE 72.5, selective 72.0, + gate + bias 73.2";
  mad.printed = {
      {"recall, none", "87.3"},
      {"recall, RoPE", "92.6"},
      {"recall, selective", "94.0"},
      {"memorise, none", "38.7"},
      {"memorise, RoPE", "61.4"},
      {"memorise, selective", "57.1"}};
  Claim swapped{
      "state tracking",
      "One layer of GLA with selective rotation learns to swap (S2 = Z2) and extrapolates; without "
      "position and with RoPE it fails at the training length",
      "running products in Z2, trained on 64 steps (small scale: 32), tested on 256",
      "test_T256/accuracy",
      {{E::solves, "selective", "", 0.5}, {E::fails, "RoPE", "", 0.5}, {E::fails, "none", "", 0.5}},
      {.seeds = 9,  // 9 of 9 and 0 of 9 decide; 4 seeds that agree could not
       .rates = {0.5, 1, 2},
       .chance = 0.6,  // the first of 256 products are easy
       .guessing = {"RoPE", "none"},
       .solved = 0.9},
      swaps};
  swapped.revision = 2;
  swapped.mended =
      "temperature 10, full rank and no bias instead of the authors' recipe; a t-interval of three "
      "seeds "
      "that solve or do not";
  swapped.settings = {
      {"task", "words of S2, trained on 128 elements, tested on 512"},
      {"data", "2 M words, 100 epochs"},
      {"model", "1 layer, D = 384, 12 heads"},
      {"steps", "100 epochs of 1024"},
      {"optimiser", "AdamW (0.9, 0.999), weight decay 1e-6, no clip"},
      {"learning rates", "5e-4, 1e-3"},
      {"seeds", "5"},
      {"mixer", "GLA, expand_k 1, convolution 4; angles of rank 32, bias, temperature 1, no gate"}};
  swapped.prints = "a figure: only the selective rotation learns, and extrapolates to 512";
  Claim thirds{
      "thirds",
      "Two layers of DeltaNet with selective rotation solve A3 = Z3 at the training length",
      "running sums modulo 3, trained and tested on 128 steps (small scale: 32)",
      "test/accuracy",
      {{E::solves, "selective", "", 0.5}},
      {.seeds = 9, .rates = {0.5, 1, 2}, .chance = 1.0 / 3, .solved = 0.9},
      rotations};
  thirds.revision = 2;
  thirds.mended = angles + "; 32 steps, which DeltaNet alone solves";
  thirds.settings = swapped.settings;
  thirds.settings[0] = {"task", "words of A3, trained and tested on 128 elements"};
  thirds.settings[2] = {"model", "2 layers, D = 384, 12 heads"};
  thirds.settings.back() = {
      "mixer", "DeltaNet, convolution 4; angles of rank 32, bias, temperature 1"};
  thirds.prints = "a figure: solved up to the training length of 128";
  Claim alone = thirds;
  alone.name = "thirds control";
  alone.says = "Not the paper but a control: DeltaNet alone does not solve Z3 at this length";
  alone.setting = "the runs of `thirds` and DeltaNet without positions";
  alone.expects = {{E::fails, "DeltaNet alone", "", 0.5}};
  alone.protocol.guessing = {"DeltaNet alone"};
  alone.arms = control;
  alone.revision = 1;
  alone.mended = "";
  alone.prints = "not printed";
  Claim copied{
      "copying",
      "With selective rotation a copy learned on short strings extends to longer ones; with RoPE "
      "not",
      "the string, a bar, the string again, read as it is written; 2 to 16 letters in training "
      "(small scale: 2 to 8), 64 in the test, GLA; selective with gate and bias",
      "test_T131/accuracy",
      {{E::solves, "selective", "", 0.5},
       {E::more_often, "selective", "RoPE"},
       {E::more_often, "selective", "none"}},
      {.seeds = 6,
       .rates = kRates,
       .chance = 1.0 / 26,
       .guessing = {"RoPE", "none"},
       .solved = 0.9},
      copying};
  copied.revision = 2;
  copied.mended =
      "another task: ours had the same marker at every output, so that a letter could not be found "
      "by "
      "the letter before it";
  copied.settings = {
      {"task", "$ string | string ., packed to 420 tokens, 2 to 64 letters; test 2 to 512"},
      {"data", "1.28 M rows, none twice"},
      {"model", "4 layers, D = 512, 16 heads"},
      {"start", "N(0, 0.02)"},
      {"steps", "5000 of 256, linear, 10 % warm-up"},
      {"optimiser", "AdamW (0.9, 0.999), weight decay 0.1, clip 1"},
      {"learning rates", "2e-3 (code; in print 5e-5)"},
      {"test", "2 to 512 letters, greedy"},
      {"seeds", "3"},
      {"mixer",
       "GLA, expand_k 1, no convolution; angles: differences, rank 32, rfa 0.9999 up to 0.25, gate "
       "x bias"}};
  copied.prints = "a figure: selective copies 512 letters, RoPE fails beyond its training lengths";
  Claim written{
      "text",
      "In language modelling selective rotation is at least as good as RoPE",
      "bytes of text, GLA",
      "test/loss",
      {{E::above, "gla selective", "gla RoPE", -0.01}},
      kText,
      text};
  written.revision = 2;
  written.mended =
      angles +
      "; the paper does not claim more than RoPE's level, nor anything of plain softmax on text; "
      "RoPE's base is 500000";
  written.settings = {
      {"task", "FineWeb, 35 B tokens, 4096 long"},
      {"model", "370 M: 24 layers, D = 1024; GLA 4 heads, Transformer 16"},
      {"steps", "66,758 of 128, warm-up 10 %, cosine to 0.1"},
      {"optimiser", "AdamW (0.9, 0.95), weight decay 0.1, clip 1"},
      {"learning rates", "5e-4 to 1.6e-2"},
      {"seeds", "1"},
      {"mixer", "angles: full rank, convolution 4, SiLU, gate; base 500,000"}};
  written.prints = "LAMBADA perplexity, GLA: none 19.2, RoPE 24.0, selective 21.5";
  written.printed = {{"gla RoPE", "23.96"}, {"gla selective", "21.50"}};
  Claim others = written;
  others.name = "text of others";
  others.says = "The same with a forgetting transformer (FoX) and Gated DeltaNet";
  others.setting = "bytes of text";
  others.expects = {
      {E::above, "FoX selective", "FoX RoPE", -0.01},
      {E::above, "GDN selective", "GDN RoPE", -0.01}};
  others.arms = text_of_others;
  others.revision = 1;
  others.mended = "";
  others.prints = "LAMBADA perplexity, FoX: RoPE 23.2, selective 23.3; Gated DeltaNet: 20.8, 21.2";
  others.printed = {
      {"FoX RoPE", "23.16"},
      {"FoX selective", "23.28"},
      {"GDN RoPE", "20.84"},
      {"GDN selective", "21.23"}};
  Claim variants = written;
  variants.name = "text variants";
  variants.says = "The same of GLA with a gate on the angles, and with a bias";
  variants.setting = "bytes of text, the runs of `text` and two more arms";
  variants.expects = {
      {E::above, "gla selective + gate", "gla RoPE", -0.01},
      {E::above, "gla selective + bias", "gla RoPE", -0.01}};
  variants.arms = text_variants;
  variants.revision = 1;
  variants.mended = "";
  variants.prints = "LAMBADA perplexity, GLA: RoPE 24.0, + gate 22.9, + bias 20.1";
  variants.printed.insert({{"gla selective + gate", "22.85"}, {"gla selective + bias", "20.12"}});
  return {
      "selective-rope",
      "2511.17388",
      "Selective rotary position embedding",
      {recalled, swapped, thirds, alone, copied, written, variants, others, longer, mad},
      "MQAR, copying and words of groups with models of 1 to 4 M parameters, and bytes of text"};
}

}  // namespace horner
