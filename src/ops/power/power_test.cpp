// What is special to `power`: the worked numbers of arXiv:2507.23632 in fp64, and its identities.
#include "ops/power/power.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "ops/contract.h"

namespace horner {
namespace {

at::Tensor rows(std::initializer_list<double> values) {
  return at::tensor(std::vector<double>(values), at::kDouble).view({1, -1, 1, 2});
}

Inputs example() {
  Inputs in;
  in.q = rows({.5, -1, 1, .25, -.75, .5, .2, 1.5});
  in.k = rows({1, .5, -.5, 1, .25, -1.25, 1.5, .75});
  in.v = rows({1, -2, .5, .25, -1, 3, 2, 1});
  return in;
}

at::Tensor example_decay() {  // -softplus of [.1, -.2, .3, 0]
  return at::log_sigmoid(-at::tensor({.1, -.2, .3, .0}, at::kDouble)).view({1, 4, 1});
}

Options order(int64_t n, const std::string& norm = "sum") {
  Options o = power_op().defaults;
  o.order = n;
  o.norm = norm;
  return o;
}

at::Tensor power(const Inputs& in, const Options& o) { return run(find_op("power"), in, {}, o).o; }
at::Tensor softmax(const Inputs& in) { return run(find_op("attention"), in, {}, {}).o; }
at::Tensor l2(const at::Tensor& y) { return y / y.norm(2, {-1}, true); }

void expect_rows(const at::Tensor& o, std::initializer_list<double> last_three) {
  EXPECT_LT((o.narrow(1, 1, 3) - rows(last_three)).abs().max().item<double>(), 1e-9);
}

TEST(Power, WorkedNumbers) {
  const Inputs in = example();
  expect_rows(
      softmax(in), {.862786044, -1.382537200, .341956825, .239829484, 1.110043324, .042015783}
  );
  expect_rows(power(in, order(0)), {.75, -.875, .166666667, .416666667, .625, .5625});
  expect_rows(
      power(in, order(2)),
      {.857858444, -1.360362997, .329141602, .259257128, 1.025681394, .130074458}
  );
  expect_rows(
      power(in, order(4)),
      {.862648642, -1.381918887, .341718977, .240216038, 1.102889006, .050231836}
  );
  expect_rows(
      power(in, order(8)),
      {.862786027, -1.382537123, .341956816, .239829499, 1.110036505, .042024659}
  );
  expect_rows(
      power(in, order(2, "none")),
      {2.531325531, -4.014090681, 1.023494148, .806182360, 7.625731641, .967077025}
  );
  expect_rows(
      l2(power(in, order(1, "none"))),
      {.546159755, -.837681038, .935778665, .352587990, .971224562, -.238165594}
  );
  expect_rows(
      power(in, order(40, "none")),
      {2.634521145, -4.221583682, 1.067489481, .748677706, 8.506258609, .321966818}
  );
}

TEST(Power, WorkedNumbersWithDecay) {
  Inputs in = example();
  in.g = example_decay();
  expect_rows(
      power(in, order(2)),
      {.790292483, -1.056316174, -.025856369, 1.069197693, 1.483382056, .853080369}
  );
  expect_rows(
      power(in, order(40)),
      {.796228634, -1.083028851, -.002396685, 1.026683374, 1.592024729, .771249731}
  );
  Options square = order(2);
  square.coefficients = {0, 0, 1};
  const at::Tensor o = power(in, square);  // 2Mamba; q_1.k_1 = 0, where the output is 0
  EXPECT_EQ(o.select(1, 0).abs().max().item<double>(), 0);
  expect_rows(o, {.958793943, -1.814572744, -.420070421, 1.862121239, .642408881, 1.640283731});
  in.g = at::Tensor();
  expect_rows(
      power(in, square),
      {.976470588, -1.894117647, -.016317016, .997668998, .317753458, 1.302021584}
  );
}

// |e^x - P_N(x)| <= |x|^(N+1)/(N+1)! max(1, e^x), so |o_N - o| <= sum_s R_ts (|v_s| + |o|) / den_N.
TEST(Power, ConvergesToSoftmaxWithinTheRemainder) {
  const Case c{
      find_op("power"),
      {"", order(2)},
      {.B = 2, .T = 32, .H = 2, .G = 2, .K = 8, .V = 4},
      at::kCPU,
      3};
  const Inputs in = sample_inputs(c, at::kDouble);
  const at::Tensor exact = softmax(in);
  const at::Tensor x = at::einsum("bthk,bshk->bhts", {in.q, in.k}) / std::sqrt(8.0);
  double last = 1e30;
  for (const int64_t N : {2, 4, 6, 8, 10, 14, 20}) {
    Options o = order(N);
    o.form = "parallel";
    o.log_norm = true;
    const Result y = run(c.op, in, {}, o);
    const double error = (y.o - exact).abs().max().item<double>();
    const at::Tensor remainder =
        (x.abs().pow(N + 1) / std::tgamma(double(N + 2)) * x.exp().clamp_min(1)).tril();
    const at::Tensor den = y.norm.exp().permute({0, 2, 1});
    const double largest = in.v.abs().max().item<double>();
    const double bound = (remainder.sum(-1) / den).max().item<double>() * 2 * largest;
    EXPECT_LE(error, bound) << "order " << N;
    EXPECT_LT(error, last) << "order " << N;
    last = error;
  }
  EXPECT_LT(last, 1e-5);
}

TEST(Power, MonomialsAreTheSymmetricKroneckerPower) {
  const at::Tensor q = at::randn({7, 5}, at::kDouble), k = at::randn({7, 5}, at::kDouble);
  const std::vector<double> c = {.3, -2, 1.5, .7};
  const at::Tensor W = at::tensor(monomial_weights(5, c), at::kDouble);
  at::Tensor q_power = at::ones({7, 1}, at::kDouble), k_power = q_power,
             full = at::zeros({7}, at::kDouble);
  for (const double c_n : c) {
    full = full + c_n * (q_power * k_power).sum(-1);
    q_power =
        at::einsum("ti,tj->tij", {q_power, q}).flatten(1);  // the full n-fold power, 5^n entries
    k_power = at::einsum("ti,tj->tij", {k_power, k}).flatten(1);
  }
  EXPECT_LT(relative_error((monomials(q, 3) * W * monomials(k, 3)).sum(-1), full), 1e-12);
  EXPECT_LT(relative_error(polynomial((q * k).sum(-1), c), full), 1e-12);
}

TEST(Power, FeatureCountsOfTheTable) {
  const auto term = [](int64_t K, int64_t n) {
    return feature_count(K, n) - feature_count(K, n - 1);
  };
  const std::vector<std::pair<int64_t, std::vector<double>>> table = {
      {16, {16, 136, 816, 3876}},
      {32, {32, 528, 5984, 52360}},
      {64, {64, 2080, 45760, 766480}},
      {128, {128, 8256, 357760}}};
  for (const auto& [K, counts] : table) {
    for (size_t n = 0; n < counts.size(); ++n) EXPECT_EQ(term(K, int64_t(n) + 1), counts[n]) << K;
  }
  const at::Tensor x = at::randn({2, 16}, at::kDouble);
  EXPECT_EQ(monomials(x, 3).size(-1), int64_t(feature_count(16, 3)));
  EXPECT_EQ(int64_t(monomial_weights(16, {1, 1, 1, 1}).size()), int64_t(feature_count(16, 3)));
}

// A positive factor before a scale-free norm does nothing: l2(sum e^x v) = l2(softmax(x) V).
TEST(Power, NormIdentity) {
  const Inputs in = example();
  EXPECT_LT(relative_error(l2(power(in, order(40, "none"))), l2(softmax(in))), 1e-12);
  EXPECT_LT(relative_error(l2(power(in, order(2, "none"))), l2(power(in, order(2)))), 1e-12);
}

TEST(Power, LimitsOfTheDecay) {
  Inputs in = example();
  const at::Tensor plain = power(in, order(2));
  in.g = at::zeros({1, 4, 1}, at::kDouble);
  EXPECT_LT(relative_error(power(in, order(2)), plain), 1e-14);
  in.g = at::full({1, 4, 1}, -std::numeric_limits<double>::infinity(), at::kDouble);
  for (const char* form : {"recurrent", "parallel", "chunked"}) {
    Options o = order(2);
    o.form = form;
    EXPECT_LT(relative_error(power(in, o), in.v), 1e-14) << form;  // a token sees itself alone
  }
}

TEST(Power, FirstOrderIsLinearAttention) {
  const Inputs in = example();
  Options linear;
  linear.scale = 1 / std::sqrt(2.0);
  const at::Tensor first = power(in, order(1, "none")) - power(in, order(0, "none"));
  EXPECT_LT(relative_error(run(find_op("linear"), in, {}, linear).o, first), 1e-14);
}

// Sinks and a window exactly, the far past by the series: one softmax.
TEST(Power, MergesWithAttentionUnderOneNormaliser) {
  const Case c{
      find_op("power"),
      {"", order(2)},
      {.B = 1, .T = 24, .H = 2, .G = 1, .K = 4, .V = 3},
      at::kCPU,
      5};
  const Inputs in = sample_inputs(c, at::kDouble);
  const int64_t T = 24, w = 6, sinks = 2;
  Options near;
  near.window = w;
  near.sinks = sinks;
  near.log_norm = true;
  Result whole = run(find_op("attention"), in, {}, near);
  const int64_t first = w + sinks;  // the first query with a far past: keys sinks .. t - w
  Inputs far;
  far.q = in.q.narrow(1, first, T - first);
  far.k = in.k.narrow(1, sinks, T - first);
  far.v = in.v.narrow(1, sinks, T - first);
  Options series = order(30);
  series.form = "parallel";
  series.log_norm = true;
  Result late{whole.o.narrow(1, first, T - first), {}, whole.norm.narrow(1, first, T - first), {}};
  late = merge(late, run(find_op("power"), far, {}, series));
  const at::Tensor merged = at::cat({whole.o.narrow(1, 0, first), late.o}, 1);
  EXPECT_LT(relative_error(merged, softmax(in)), 1e-9);
}

TEST(Power, AutoTakesTheCheaperFormAndSaysWhich) {
  const auto form_at = [](int64_t T, int64_t K, int64_t N) {
    Inputs in;
    in.q = in.k = in.v = at::zeros({1, T, 1, K});
    return chosen_form(find_op("power"), in, {}, order(N)).name;
  };
  EXPECT_EQ(form_at(64, 16, 2), "parallel");
  EXPECT_EQ(form_at(8192, 16, 2), "chunked");
  EXPECT_EQ(form_at(8192, 64, 10), "parallel");  // its state would have 6.9e11 features
  EXPECT_EQ(form_at(1, 16, 2), "step");
}

// K orthogonal directions: q_t.k_s = 0 for t != s, so every weight is 1 or p(r). The state adds terms as large as p(r).
TEST(Power, ScoresBeyondTheDigitsOfAStateAreRefused) {
  Inputs in;
  in.q = at::eye(4).view({1, 4, 1, 4}).roll(1, 3).contiguous();  // reads no key of its own past
  in.k = at::eye(4).view({1, 4, 1, 4});
  in.v = at::arange(1, 5, at::kFloat).view({1, 4, 1, 1});
  Options o = order(10);
  o.scale = 1;
  const auto run_at = [&](double r, const char* form, at::ScalarType type = at::kFloat) {
    Inputs large = in;
    large.q = (in.q * std::sqrt(r)).to(type);
    large.k = (in.k * std::sqrt(r)).to(type);
    large.v = in.v.to(type);
    Options asked = o;
    asked.form = form;
    asked.chunk = 2;
    return power(large, asked).to(at::kDouble);
  };
  const double no_digit = score_where(series(o), kNoDigit);
  EXPECT_NEAR(no_digit, 22.66, 0.01);
  EXPECT_NEAR(trusted_score(o), 10, 0.5);
  EXPECT_NEAR(trusted_score(order(2)), 182, 1);
  for (const char* form : {"recurrent", "chunked"}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      EXPECT_LT(
          relative_error(
              run_at(0.9 * no_digit, form, at::kDouble),
              run_at(0.9 * no_digit, "parallel", at::kDouble)
          ),
          1e-8
      );
      try {
        run_at(100, form, type);
        ADD_FAILURE() << form;
      } catch (const UsageError& error) {
        EXPECT_EQ(
            std::string(error.what()).substr(0, 60),
            fmt::format("[power] form = {} at order 10: scale |q||k| reaches 100, and", form)
                .substr(0, 60)
        );
      }
    }
  }
  // The parallel form takes them: one row of weights 1 and p(100), exactly.
  const double p = polynomial(at::tensor({100.0}, at::kDouble), series(o)).item<double>();
  const at::Tensor y = run_at(100, "parallel");
  EXPECT_NEAR(y.view({-1})[0].item<double>(), 1, 1e-6);
  EXPECT_NEAR(y.view({-1})[3].item<double>(), (p * 1 + 2 + 3 + 4) / (p + 3), 1e-6);
}

void expect_refused(const Inputs& in, const Options& o, const std::string& words) {
  try {
    power(in, o);
    ADD_FAILURE() << "not refused: " << words;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Power, RefusesInOneLine) {
  const Inputs in = example();
  expect_refused(in, order(3), "norm = sum needs an even order");
  expect_refused(in, order(-1), "order must lie in 0 .. 64, got -1");
  expect_refused(in, order(100'000'000), "order must lie in 0 .. 64, got 100000000");
  Options short_series = order(2);
  short_series.coefficients = {1, 1};
  expect_refused(in, short_series, "3 numbers, got 2");
  Options window = order(2);
  window.window = 4;
  expect_refused(in, window, "[power] takes no window");
  Inputs per_key = in;
  per_key.g = at::zeros({1, 4, 1, 2}, at::kDouble);
  expect_refused(per_key, order(2), "needs decay = inside");
  Inputs wide;
  wide.q = wide.k = wide.v = at::zeros({1, 2, 1, 64});
  Options vast = order(10);
  vast.final_state = true;
  expect_refused(wide, vast, "only form = parallel without a state can run");
}

}  // namespace
}  // namespace horner
