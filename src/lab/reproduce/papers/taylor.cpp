#include <algorithm>
#include <string_view>

#include "lab/explain/explain.h"
#include "lab/reproduce/papers/papers.h"
#include "tasks/task.h"

namespace horner {
namespace {

std::vector<Arm> arms_of(
    Effort scale, const std::vector<std::pair<std::string, std::string>>& list, int64_t steps = 600
) {
  std::vector<Arm> arms;
  for (const auto& [label, mixer] : list) arms.push_back({label, language(scale, {mixer}, steps)});
  return arms;
}

// As the authors' trainer: torch's start of the matrices, N(0, 0.02) of the embedding.
std::vector<Arm> as_authors(std::vector<Arm> arms) {
  for (Arm& arm : arms) arm.options.model.init = "torch_linear";
  return arms;
}

// K = 16, because the state of a high order is allocated to measure its size. The same normaliser in the series and in softmax.
std::vector<Arm> orders_with(
    Effort scale, const std::string& norm, const std::vector<int>& orders
) {
  const char* heads = scale == Effort::gpu ? ",heads=16" : "";
  std::vector<std::pair<std::string, std::string>> list = {
      {"softmax", fmt::format("softmax:norm={}{}", norm, heads)}};
  for (const int order : orders)
    list.emplace_back(
        fmt::format("order {}", order), fmt::format("taylor:norm={},order={}{}", norm, order, heads)
    );
  return as_authors(arms_of(scale, list));
}

// The sum of an odd order can vanish.
std::vector<Arm> orders(Effort scale) { return orders_with(scale, "sum", {2, 4, 6, 8, 10}); }
std::vector<Arm> orders_l2(Effort scale) {
  return orders_with(scale, "l2", {0, 1, 2, 4, 6, 8, 10});
}

std::vector<Arm> normalisers(Effort scale) {
  return as_authors(arms_of(
      scale,
      {{"softmax", "softmax"},
       {"norm l2", "softmax:norm=l2"},
       {"gate", "softmax:norm=gate,clamp=5"}},
      1500
  ));
}

// rms and layer with a weight that starts at 1/sqrt(V) write as much as l2 at first. The authors' have a clamp: with and without.
std::vector<Arm> norms_with(Effort scale, const std::string& clamp) {
  return as_authors(arms_of(
      scale,
      {{"norm l2", "softmax:norm=l2" + clamp},
       {"norm rms", "softmax:norm=rms,norm_start=unit" + clamp},
       {"norm layer", "softmax:norm=layer,norm_start=unit,norm_bias=true" + clamp}},
      1500
  ));
}
std::vector<Arm> norms(Effort scale) { return norms_with(scale, ""); }
std::vector<Arm> norms_clamped(Effort scale) { return norms_with(scale, ",clamp=5"); }

std::vector<Arm> powers(Effort scale) {
  return as_authors(arms_of(
      scale,
      {{"softmax", "softmax"},
       {"elu1", "linear:position.kind=rope"},
       {"elu1 to 4", "linear:position.kind=rope,power=4,series=true"},
       {"relu", "linear:position.kind=rope,feature=relu"},
       {"relu to 4", "linear:position.kind=rope,feature=relu,power=4,series=true"},
       {"cosine", "linear:position.kind=rope,feature=cosine,norm=none"},
       {"cosine to 4", "linear:position.kind=rope,feature=cosine,norm=none,power=4,series=true"}}
  ));
}

// The same normaliser around the exponential and around linear attention's weights.
std::vector<Arm> kernels(Effort scale) {
  return as_authors(arms_of(
      scale,
      {{"exp, l2", "softmax:norm=l2"},
       {"relu, l2", "linear:position.kind=rope,feature=relu,norm=l2"},
       {"exp, gate", "softmax:norm=gate,clamp=5"},
       {"relu, gate", "linear:position.kind=rope,feature=relu,norm=gate"}}
  ));
}

// Every normaliser, gate, decay and convolution of the authors' code that is a setting here. They clamp where nothing divides.
std::vector<Arm> ablation(Effort scale) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const char* norm : {"sum", "l2", "unit_d", "clampden", "detach"})
    list.emplace_back(fmt::format("norm {}", norm), fmt::format("softmax:norm={}", norm));
  for (const char* norm : {"rms", "layer", "count", "gate", "cumgate", "none"})
    list.emplace_back(
        fmt::format("norm {}, clamp", norm), fmt::format("softmax:norm={},clamp=5", norm)
    );
  list.emplace_back("l2, input gate", "softmax:norm=l2,input_gate=true");
  list.emplace_back("l2, output gate", "softmax:norm=l2,output_gate=post");
  list.emplace_back("l2, conv 4", "softmax:norm=l2,conv=4");
  list.emplace_back("l2, decay", "softmax:norm=l2,decay=softplus,position.kind=none");
  // Theirs divides by the length and has an output gate, which LayerNorm takes away again, and a clamp at 5.
  const std::string gated = "softmax:norm=layer,norm_bias=true,input_gate=true,position.kind=none";
  list.emplace_back("layer, input gate", gated);
  list.emplace_back("layer, input gate, decay / 1024", gated + ",decay=shifted");
  return as_authors(arms_of(scale, list));
}

// The same number of bytes a step. A gate needs the clamp, whose kernels are plain ones: at 4096 bytes it would cost more than
// all other arms.
std::vector<Arm> lengths(Effort scale) {
  const bool gpu = scale == Effort::gpu;
  std::vector<Arm> arms;
  for (const int T : {gpu ? 512 : 64, gpu ? 4096 : 256}) {
    for (Arm arm : normalisers(scale)) {
      if (arm.label == "gate") continue;
      arm.label += fmt::format(", {}", T == 512 || T == 64 ? "short" : "long");
      const int64_t bytes = arm.options.train.batch * (gpu ? 512 : 64);
      arm.options.task = fmt::format("byte:T={}", T);
      arm.options.train.batch = bytes / T;
      arms.push_back(arm);
    }
  }
  return arms;
}

std::vector<Arm> trained(Effort scale) { return arms_of(scale, {{"softmax", "softmax"}}); }

// Shares of mean |x^n / n!|, n = 0 .. 99, over the layers of a trained model that reads text of the test; and the order
// with the
// largest share, mean over the layers.
void probe(const Trial& trial, Finding& finding) {
  for (int n = 0; n <= 10; ++n) finding.rows.push_back({fmt::format("order {}", n)});
  finding.rows.push_back({"all above order 4"});
  finding.rows.push_back({"order of the largest term"});
  for (const std::string& folder : trial.folders.at("softmax")) {
    const TrainOptions o = read_result(folder).options;
    const Batch batch = make_task(o.task)->batch(Split::test, {0});
    std::vector<double> shares(11);
    double above = 0, largest = 0;
    for (int64_t layer = 0; layer < o.model.layers; ++layer) {
      const auto own = explain_layer(folder, layer, batch.tokens).orders;
      for (size_t n = 0; n < own.size(); ++n) {
        if (n < shares.size()) shares[n] += own[n] / double(o.model.layers);
        if (n > 4) above += own[n] / double(o.model.layers);
      }
      const auto most = std::max_element(own.begin(), own.end()) - own.begin();
      largest += double(most) / double(o.model.layers);
    }
    for (size_t n = 0; n < shares.size(); ++n) finding.rows[n].scores.push_back(shares[n]);
    finding.rows[shares.size()].scores.push_back(above);
    finding.rows.back().scores.push_back(largest);
  }
}

}  // namespace

Paper taylor_paper() {
  using E = Expectation;
  const std::vector<Setting> sizes = {
      {"task", "FineWeb, Pile and SlimPajama, Llama-2 tokens, 1024 of them"},
      {"data", "3.7 G tokens, none twice"},
      {"model", "Llama 2: 20 layers, D = 1024, 16 heads, 275 M; 2 B"},
      {"start", "torch's matrices, embedding N(0, 0.02): our torch_linear"},
      {"steps", "100,000 of 36, warm-up 10,000, linear to 0.9"},
      {"optimiser", "AdamW (0.9, 0.999), weight decay 0.01, no clip"},
      {"learning rates", "1e-4"},
      {"seeds", "1"}};
  const auto claim = [&](std::string name,
                         std::string says,
                         std::string setting,
                         std::vector<E> expects,
                         std::vector<Arm> (*arms)(Effort),
                         std::string mended,
                         std::string prints,
                         std::map<std::string, std::string> printed = {},
                         size_t headline = 0) {
    Claim c{std::move(name), std::move(says), std::move(setting), "test/loss", std::move(expects)};
    c.protocol = kText;
    c.arms = arms;
    c.settings = sizes;
    c.revision = mended.empty() ? 1 : 2;
    c.mended = std::move(mended);
    c.prints = std::move(prints);
    c.printed = std::move(printed);
    c.headline = headline;
    if (c.name.starts_with("orders")) c.protocol.seeds = 6;  // a margin of 0.02 takes as many
    return c;
  };
  Claim terms = claim(
      "probe",
      "In trained models the largest terms x^n / n! of the scores lie far above n = 1: at order 5 "
      "to 23 "
      "in all layers but one of Llama-3-8B",
      "the softmax model on bytes of text, mean over its layers, n = 0 .. 99",
      {{E::reaches, "all above order 4", "", 0.5},
       {E::reaches, "order of the largest term", "", 1}},
      trained,
      "shares were cut at order 10, where they still rose",
      "Llama-3-8B: largest at order 5 to 23 in 31 of 32 layers"
  );
  terms.score = "share";
  terms.measure = probe;
  terms.protocol = {.seeds = 4, .most = 12};
  return {
      "taylor",
      "2507.23632",
      "Softmax attention as a Taylor series of recurrent networks",
      {
          claim(
              "orders",
              "More orders of the series bring the loss down to softmax's; from order 8 on there "
              "is "
              "no difference",
              "bytes of text, every arm divided by its sum, K = 16",
              {{E::above, "order 4", "order 2"},
               {E::above, "order 6", "order 4", -0.01},
               {E::above, "softmax", "order 2"},
               {E::near, "order 8", "softmax", 0.02},
               {E::near, "order 10", "softmax", 0.02}},
              orders,
              "series and softmax had the norm l2; the paper's are divided by their sum (l2 is the "
              "claim `orders l2` now); another start than the authors'",
              "FineWeb: 3.82, 3.49, 3.42, 3.39, 3.35 at orders 2, 4, 6, 8, 10; softmax 3.33 "
              "(figure)",
              {{"order 2", "3.82"},
               {"order 4", "3.49"},
               {"order 6", "3.42"},
               {"order 8", "3.39"},
               {"order 10", "3.35"},
               {"softmax", "3.33"}},
              3
          ),
          claim(
              "orders l2",
              "The same with the vector norm in the place of the sum, from order 0 on",
              "bytes of text, norm l2 in every arm, K = 16",
              {{E::above, "order 1", "order 0"},
               {E::above, "order 2", "order 1"},
               {E::above, "order 4", "order 2"},
               {E::above, "order 6", "order 4", -0.01},
               {E::above, "softmax", "order 2"},
               {E::near, "order 8", "softmax", 0.02},
               {E::near, "order 10", "softmax", 0.02}},
              orders_l2,
              "",
              "not printed with this norm",
              {},
              5
          ),
          claim(
              "norm",
              "A vector norm (l2) replaces the denominator at no loss; a gate in its place is "
              "worse",
              "bytes of text, softmax with each normaliser",
              {{E::above, "norm l2", "softmax", -0.01}, {E::above, "softmax", "gate"}},
              normalisers,
              "\"no loss\" was tested two-sided; the norm did not start as in the authors' code; "
              "rms and layer started eight times as large as l2 (they are the claim `norms` now)",
              "Pile: softmax 2.57, l2 2.57, gate 2.62 (figure)",
              {{"softmax", "2.57"}, {"norm l2", "2.57"}, {"gate", "2.62"}}
          ),
          claim(
              "norms",
              "RMSNorm and LayerNorm in its place are as good as l2",
              "bytes of text, no clamp in any arm",
              {{E::near, "norm rms", "norm l2", 0.02}, {E::near, "norm layer", "norm l2", 0.02}},
              norms,
              "",
              "in words: any of l2, rms and layer replaces the denominator"
          ),
          claim(
              "norms clamped",
              "The same with scores that are clamped at 5",
              "bytes of text; the authors' rms and layer arms clamp the scores, their l2 arm does "
              "not: here every arm does",
              {{E::near, "norm rms", "norm l2", 0.02}, {E::near, "norm layer", "norm l2", 0.02}},
              norms_clamped,
              "",
              "in words: any of l2, rms and layer replaces the denominator"
          ),
          claim(
              "powers",
              "Powers help linear attention but do not bring it to softmax",
              "bytes of text, powers 1..4 over n! of the weights of elu+1, relu and cosine "
              "features; cosine over "
              "the features, not over the heads as in the authors' code",
              {{E::above, "elu1 to 4", "elu1"},
               {E::above, "relu to 4", "relu"},
               {E::above, "cosine to 4", "cosine"},
               {E::above, "softmax", "elu1 to 4"},
               {E::above, "softmax", "relu to 4"},
               {E::above, "softmax", "cosine to 4"}},
              powers,
              "relu features had 1e-3 added; the authors' are plain; another start than the "
              "authors'",
              "in words: powers help relu, elu and cosine features and do not reach softmax"
          ),
          claim(
              "kernel",
              "The exponential is needed: under the same normaliser linear attention's weights are "
              "worse",
              "bytes of text; relu features and the exponential, each with l2 and with the gate",
              {{E::above, "exp, l2", "relu, l2"}, {E::above, "exp, gate", "relu, gate"}},
              kernels,
              "",
              "in words: exponential and norm are both needed"
          ),
          claim(
              "ablation",
              "Every normaliser, gate, decay and convolution of the authors' code in one table",
              "bytes of text; their decay arm has LayerNorm, an input gate and no rotation; the "
              "clamp of its scores is left "
              "out",
              {},
              ablation,
              "",
              "curves in figures"
          ),
          claim(
              "lengths",
              "The norm costs nothing at four times the length either (1024 to 4096 tokens)",
              "bytes of text, full scale: 512 and 4096 bytes, small scale: 64 and 256, as many "
              "bytes "
              "a step",
              {{E::above, "norm l2, long", "softmax, long", -0.01},
               {E::above, "norm l2, short", "softmax, short", -0.01}},
              lengths,
              "",
              "4096 tokens, 30,000 steps: softmax 3.00, l2 3.00; 20,000 steps: 3.16, 3.17, gate "
              "3.22 (figure)",
              {{"softmax, long", "3.00"}, {"norm l2, long", "3.00"}}
          ),
          terms,
      },
      "bytes of text with models of 3 M parameters"};
}

}  // namespace horner
