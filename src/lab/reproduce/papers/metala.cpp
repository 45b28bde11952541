#include <cmath>

#include "core/random.h"
#include "lab/reproduce/papers/papers.h"

namespace horner {
namespace {

std::vector<Arm> ordering(Effort scale) {
  return {
      {"softmax", recall(scale, "softmax:heads=2,position.kind=none")},
      {"MetaLA", recall(scale, "metala:heads=2,conv=2,expand_k=1")},
      {"GLA", recall(scale, "gla:heads=2,expand_k=1")},
      {"Based", recall(scale, "taylor:order=2,heads=4,position.kind=none")},
      {"Mamba", recall(scale, scale == Effort::gpu ? "s6:state=16" : "mamba2:state=16")}};
}

std::vector<Arm> ablation(Effort scale) {
  return {
      {"MetaLA", language(scale, {"metala"})},
      {"no self-augmentation", language(scale, {"metala:augment=false"})},
      {"no convolution", language(scale, {"metala:conv=0"})},
      {"with a key", language(scale, {"metala:key=own"})}};
}

// The three conditions, of one channel: S = a S + k v, o = q S, |q|, |k| <= 1 and 0 <= a <= 1.
//
//   C1  the memory can keep v_1 past an unimportant token and can replace it by an important v_2
//   C2  rows p of a softmax map are weights q_t k_s a_{s+1} .. a_t
//   C3  it has the fewest of q, k and decay among the families that satisfy both
//
// The error of C1 is the larger one of keeping (1,0) and replacing (0,1). The error of C2 is the sum of |weight - p_s| over
// two rows. Each family of models gets its best parameters.
constexpr int64_t kTokens = 1024;
using Row = std::vector<double>;

Row softmax_row(uint64_t index) {
  Random random(7, Split::test, Stream::content, index);
  Row p(kTokens);
  double total = 0;
  for (double& x : p) total += x = std::exp(random.normal());
  for (double& x : p) x /= total;
  return p;
}

double error(const Row& weights, const Row& p) {
  double sum = 0;
  for (size_t s = 0; s < p.size(); ++s) sum += std::abs(weights[s] - p[s]);
  return sum;
}

// k_s a_{s+1} .. a_T
Row read(const Row& a, const Row& k) {
  Row weights(k.size());
  double after = 1;
  for (size_t s = k.size(); s-- > 0; after *= a[s]) weights[s] = after * k[s];
  return weights;
}

// a_s = P_{s-1} / P_s and k = 1 - a, P the running sum of p: the weights are p.
Row own_decay(const Row& p) {
  Row a(p.size());
  double sum = 0;
  for (size_t s = 0; s < p.size(); ++s) {
    a[s] = sum / (sum + p[s]);
    sum += p[s];
  }
  return a;
}

Row one_minus(Row x) {
  for (double& y : x) y = 1 - y;
  return x;
}

// S = a v_1 + k v_2 should be v_1 where the second token is unimportant, v_2 where it is important:
// the worse of the two errors. Decays are searched between `low` and `high`; a dynamic one may differ
// between the two cases, and `tied` means k = 1 - a.
double memory_error(bool dynamic, bool tied, double low, double high) {
  constexpr double step = 1.0 / 64;
  double keep = 2, replace = 2, same = 2;  // smallest errors: of each alone, of both with one decay
  for (double a = low; a <= high; a += step) {
    double keeps = 2, replaces = 2;
    for (double k = tied ? 1 - a : 0; k <= (tied ? 1 - a : 1); k += step) {
      keeps = std::min(keeps, std::max(1 - a, k));
      replaces = std::min(replaces, std::max(a, 1 - k));
    }
    keep = std::min(keep, keeps);
    replace = std::min(replace, replaces);
    same = std::min(same, std::max(keeps, replaces));
  }
  return dynamic ? std::max(keep, replace) : same;
}

void conditions(const Trial&, Finding& finding) {
  const Row p1 = softmax_row(0), p2 = softmax_row(1), one(kTokens, 1);
  const auto both = [&](auto weights) { return error(weights(p1), p1) + error(weights(p2), p2); };
  // A fixed decay: k_s = p_s / a^{T-s} as far as |k| <= 1 allows, the best of many decays below 1.
  const auto fixed = [&](const Row& p) {
    double best = 2;
    for (double a = 0.5; a < 0.99; a += 0.01) {
      Row k(kTokens);
      for (size_t s = 0; s < k.size(); ++s)
        k[s] = std::min(1.0, p[s] / std::pow(a, double(kTokens - 1 - int64_t(s))));
      best = std::min(best, error(read(Row(kTokens, a), k), p));
    }
    return best;
  };
  const auto key_only = [&](const Row& p) { return error(read(one, p), p); };  // k = p, a = 1
  const Row a1 = own_decay(p1), w1 = read(a1, one_minus(a1));
  const struct {
    const char* name;
    bool dynamic, tied;
    double low, high, c2;
    int groups;
  } families[] = {
      {"fixed decay", false, false, 0, 1, fixed(p1) + fixed(p2), 2},
      {"no decay", false, false, 1, 1, key_only(p1) + key_only(p2), 2},
      {"no query", true, true, 0, 1, error(w1, p1) + error(w1, p2), 2},  // one row serves both
      {"GLA", true, false, 0, 1, key_only(p1) + key_only(p2), 3},
      {"MetaLA",  // a channel for each row, q picks one
       true,
       true,
       0,
       1,
       both([](const Row& p) { return read(own_decay(p), one_minus(own_decay(p))); }),
       2}};
  for (const auto& f : families) {
    const std::string name = f.name;
    finding.rows.push_back(
        {name + ": C1 error", {memory_error(f.dynamic, f.tied, f.low, f.high)}, true}
    );
    finding.rows.push_back({name + ": C2 error", {f.c2}, true});
    finding.rows.push_back({name + ": C3 groups", {double(f.groups)}, true});
  }
}

}  // namespace

Paper metala_paper() {
  using E = Expectation;
  return {
      "metala",
      "2411.10741",
      "MetaLA: unified optimal linear approximation to softmax attention map",
      {
          {"conditions",
           "Dynamic memory (C1) needs a dynamic decay; any static map with bounded parameters (C2) "
           "needs a query and no fixed decay; MetaLA does both with the fewest groups (C3)",
           "two random rows of 1024 tokens, one channel a row, best parameters in closed form or "
           "by a grid",
           "value",
           {{E::reaches, "fixed decay: C1 error", "", 0.1},
            {E::reaches, "no decay: C1 error", "", 0.1},
            {E::under, "no query: C1 error", "", 1e-12},
            {E::under, "GLA: C1 error", "", 1e-12},
            {E::under, "MetaLA: C1 error", "", 1e-12},
            {E::reaches, "fixed decay: C2 error", "", 0.1},
            {E::under, "no decay: C2 error", "", 1e-12},
            {E::reaches, "no query: C2 error", "", 0.1},
            {E::under, "GLA: C2 error", "", 1e-12},
            {E::under, "MetaLA: C2 error", "", 1e-12},
            {E::above, "GLA: C3 groups", "MetaLA: C3 groups"}},
           1,
           nullptr,
           conditions},
          {"recall",
           "MetaLA recalls better than Mamba, GLA and Based; attention is above 99 %",
           "MQAR; Mamba is Mamba-2 at scale cpu, S6 at scale gpu",
           "test/accuracy",
           {{E::reaches, "softmax", "", 0.95},
            {E::above, "MetaLA", "Mamba"},
            {E::above, "MetaLA", "GLA"},
            {E::above, "MetaLA", "Based"}},
           3,
           ordering},
          {"ablation",
           "The short convolution matters most, self-augmentation a little, a key of its own "
           "nothing",
           "bytes of text",
           "test/loss",
           {{E::above, "MetaLA", "no convolution"},
            {E::above, "MetaLA", "no self-augmentation"},
            {E::near, "with a key", "MetaLA", 0.02}},
           3,
           ablation},
      }};
}

}  // namespace horner
