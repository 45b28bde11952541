#include "lab/convert/bound.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "core/data_test.h"
#include "lab/convert/certificate.h"
#include "model/formats/formats.h"

namespace horner {
namespace {

struct Head {
  at::Tensor q, k, v;  // (T,K), (T,K), (T,V)
  Core core() const {
    Core c;
    c.op = &find_op("attention");
    c.in.q = q.view({1, q.size(0), 1, q.size(1)});
    c.in.k = k.view({1, k.size(0), 1, k.size(1)});
    c.in.v = v.view({1, v.size(0), 1, v.size(1)});
    return c;
  }
};

Head random_head(int64_t T, int64_t K, double scale) {
  return {
      scale * at::randn({T, K}, at::kDouble),
      scale * at::randn({T, K}, at::kDouble) + at::randn({K}, at::kDouble),
      at::randn({T, 3}, at::kDouble)};
}

// The output of softmax whose far weights are those of the approximation, from the formulas of bound.h.
at::Tensor output(const Head& h, const Approximation* a) {
  const int64_t T = h.q.size(0);
  at::Tensor o = at::zeros_like(h.v);
  for (int64_t t = 0; t < T; ++t) {
    at::Tensor numerator = at::zeros({h.v.size(1)}, at::kDouble);
    double sum = 0;
    for (int64_t u = 0; u <= t; ++u) {
      const double root = std::sqrt(double(h.q.size(1)));
      const at::Tensor q = h.q[t] / root;
      double weight = std::exp(q.dot(h.k[u]).item<double>());
      const bool near = a == nullptr || (a->window > 0 && (t - u < a->window || u < a->sinks));
      if (!near && a->drops) weight = 0;
      if (!near && !a->drops) {
        const at::Tensor mu =
            a->centres[0][(a->centres[0] - h.k[u]).norm(2, 1).argmin().item<int64_t>()];
        const double x = q.dot(h.k[u] - mu).item<double>();
        double p = 0, term = 1;
        for (int64_t n = 0; n <= a->order; ++n) {
          p += term;
          term *= x / double(n + 1);
        }
        weight = std::exp(q.dot(mu).item<double>() + a->bias[0].item<double>()) * p;
      }
      numerator = numerator + weight * h.v[u];
      sum += weight;
    }
    o[t] = numerator / sum;
  }
  return o;
}

// The bound is never below the error, whatever the head, the window, the order, the centres and the bias.
RC_GTEST_PROP(Bound, IsNeverBelowTheError, ()) {
  at::manual_seed(uint64_t(*rc::gen::inRange(0, 1 << 30)));
  const int64_t T = *rc::gen::inRange(1, 24), K = *rc::gen::inRange(1, 6);
  const double scale = *rc::gen::element(0.05, 0.3, 1.0, 3.0);
  const Head h = random_head(T, K, scale);
  Approximation a;
  a.window = *rc::gen::inRange(0, 8);
  a.sinks = a.window > 0 ? *rc::gen::inRange(0, 3) : 0;
  a.drops = a.window > 0 && *rc::gen::arbitrary<bool>();
  a.order = 2 * *rc::gen::inRange(0, 4);
  a.centres = h.k.narrow(0, 0, std::min<int64_t>(T, *rc::gen::inRange(1, 4))).unsqueeze(0);
  a.bias = at::full({1}, *rc::gen::element(0.0, -0.2, 0.1), at::kDouble);
  const at::Tensor error = (output(h, &a) - output(h, nullptr)).norm(2, 1);
  const HeadBound bound = bound_of(a, h.core(), 0, 0);
  const double beyond = (error - bound.bound).max().item<double>();
  RC_ASSERT(beyond <= 1e-9 * bound.most.max().item<double>());
  RC_ASSERT((bound.bound <= bound.most + 1e-12).all().item<bool>());
}

TEST(Bound, IsSmallWhereKeysAreNearTheirCentre) {
  at::manual_seed(1);
  const Head h = random_head(32, 4, 0.1);
  Approximation a;
  a.centres = h.k.mean(0).view({1, 1, 4});
  a.bias = at::zeros({1}, at::kDouble);
  double last = 1;
  for (const int64_t order : {0, 2, 4}) {
    a.order = order;
    const HeadBound bound = bound_of(a, h.core(), 0, 0);
    const double share = (bound.bound / bound.most).mean().item<double>();
    EXPECT_LT(share, last / 10) << order;
    last = share;
  }
}

TEST(Bound, OfTheSeriesIsTheRemainderOfLagrange) {
  EXPECT_NEAR(series_error(0.5, 2), 0.5 * 0.5 * 0.5 * std::exp(0.5) / 6, 1e-12);
  EXPECT_EQ(series_error(0, 2), 0);
  for (const double x : {-2.0, -0.3, 0.7, 1.9}) {
    const double p = 1 + x + x * x / 2;
    EXPECT_LE(std::abs(p / std::exp(x) - 1), series_error(std::abs(x), 2));
  }
}

// Of a trained model: every head, with the mixers themselves.
TEST(Bound, HoldsForTheHeadsOfATrainedModel) {
  const std::string folder = test_data("tinystories656k");
  HORNER_NEED(folder);
  const LoadedModel loaded = open_model(folder);
  Model& teacher = *loaded.model;
  const ModelOptions& o = teacher.options();
  const std::vector<int32_t> ids = loaded.tokenizer->encode(
      "Once upon a time there was a little girl. She liked to play in the garden with her dog. One "
      "day the dog ran "
      "away, and the girl was very sad. She looked for him in the house and in the garden. Then "
      "she heard a sound."
  );
  const at::Tensor input =
      at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
  const Kept none(size_t(o.layers), false);
  for (const char* name :
       {"window:window=8,sinks=2",
        "taylor:order=4,centre=mean",
        "centres:count=8",
        "hybrid:window=8,sinks=2,far=centres,count=16",
        "hybrid:window=8,sinks=2,far=taylor"}) {
    const auto student = shared_model(student_options(o, MixerSpec::parse(name), none), {&teacher});
    calibrate_on(teacher, *student, none, input, nullptr);
    const std::vector<HeadError> heads = head_errors(teacher, *student, none, input);
    ASSERT_FALSE(heads.empty());
    for (const HeadError& e : heads) {
      ASSERT_TRUE(e.bound) << name;
      EXPECT_LE(e.beyond, 1e-4) << name << " layer " << e.layer << " head " << e.head;
      EXPECT_LE(e.error, *e.bound + 1e-5) << name;
    }
  }
}

}  // namespace
}  // namespace horner
