#include "nn/head_loss/head_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/device.h"

namespace horner {
namespace {

struct Case {
  int64_t n, D, V;
  bool bias = false;
  double cap = 0;
  int64_t piece = kPieceLogits;
};

struct Problem {
  at::Tensor x, weight, bias, targets;
  explicit Problem(const Case& c) {
    at::manual_seed(0);
    x = at::randn({c.n, c.D}, at::kDouble);
    weight = at::randn({c.V, c.D}, at::kDouble);
    if (c.bias) bias = at::randn({c.V}, at::kDouble);
    targets = at::randint(c.V, {c.n}, at::kLong);
    if (c.n > 3) targets[c.n / 2] = -1;  // has no target
  }
  std::vector<at::Tensor> leaves(at::Device device, at::ScalarType type) const {
    std::vector<at::Tensor> list;
    for (const at::Tensor& y : {x, weight, bias}) {
      if (y.defined()) list.push_back(y.to(device, type).requires_grad_(true));
    }
    return list;
  }
};

Head head_of(const std::vector<at::Tensor>& leaves, double cap) {
  return {leaves[1], leaves.size() > 2 ? leaves[2] : at::Tensor(), cap};
}

// The definition: all logits, then the mean of torch's loss.
at::Tensor plain(const std::vector<at::Tensor>& leaves, const at::Tensor& targets, double cap) {
  const Head h = head_of(leaves, cap);
  at::Tensor l = at::linear(leaves[0], h.weight, h.bias);
  if (cap > 0) l = cap * (l / cap).tanh();
  return at::cross_entropy_loss(l, targets, {}, at::Reduction::Sum, -1);
}

// The loss and its gradients, times 0.7.
std::vector<at::Tensor> with_gradients(at::Tensor loss, const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> all = torch::autograd::grad({loss * 0.7}, leaves);
  all.push_back(loss.detach());
  return all;
}

void expect_near(
    const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& exact, double bound
) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const at::Tensor d = got[i].to(at::kCPU, at::kDouble) - exact[i];
    EXPECT_LE(d.norm().item<double>(), bound * exact[i].norm().item<double>()) << i;
  }
}

TEST(HeadLoss, HasTheGradientOfItsDefinition) {
  for (const Case& c :
       {Case{5, 3, 7},
        Case{300, 6, 11, true, 0, 128 * 11},
        Case{257, 4, 9, false, 1.5, 1},
        Case{1, 4, 2, true, 2},
        Case{0, 4, 5, true}}) {
    const Problem p(c);
    const auto leaves = p.leaves(at::kCPU, at::kDouble);
    const auto exact = with_gradients(plain(leaves, p.targets, c.cap), leaves);
    const at::Tensor loss = head_loss(leaves[0], head_of(leaves, c.cap), p.targets, c.piece);
    expect_near(with_gradients(loss, leaves), exact, 1e-12);
    const c10::NoGradGuard none;
    const at::Tensor alone = head_loss(leaves[0], head_of(leaves, c.cap), p.targets, c.piece);
    EXPECT_FALSE(alone.requires_grad());
    EXPECT_EQ(alone.item<double>(), loss.item<double>());
  }
}

TEST(HeadLoss, LeavesFrozenInputsAlone) {
  const Problem p({6, 3, 5});
  const auto leaves = p.leaves(at::kCPU, at::kDouble);
  const auto exact = with_gradients(plain(leaves, p.targets, 0), leaves);
  for (const size_t one : {0, 1}) {
    const at::Tensor x = one == 0 ? leaves[0] : leaves[0].detach();
    const at::Tensor weight = one == 1 ? leaves[1] : leaves[1].detach();
    const at::Tensor loss = head_loss(x, {weight, {}, 0}, p.targets);
    expect_near(torch::autograd::grad({loss * 0.7}, {leaves[one]}), {exact[one]}, 1e-12);
  }
}

// The definition: KL of a second head's distribution to this one's, summed.
at::Tensor plain_kl(
    const std::vector<at::Tensor>& leaves, const at::Tensor& y, const Head& wanted, double cap
) {
  const auto log_p = [](const at::Tensor& x, const Head& h) {
    at::Tensor l = at::linear(x, h.weight, h.bias);
    if (h.cap > 0) l = h.cap * (l / h.cap).tanh();
    return at::log_softmax(l, -1);
  };
  return at::kl_div(
      log_p(leaves[0], head_of(leaves, cap)), log_p(y, wanted), at::Reduction::Sum, true
  );
}

TEST(HeadKl, HasTheGradientOfItsDefinition) {
  for (const Case& c :
       {Case{5, 3, 7}, Case{300, 6, 11, true, 0, 128 * 11}, Case{257, 4, 9, false, 1.5, 1}}) {
    const Problem p(c);
    const auto leaves = p.leaves(at::kCPU, at::kDouble);
    const at::Tensor y = at::randn({c.n, 2}, at::kDouble);  // of another width
    const Head wanted{at::randn({c.V, 2}, at::kDouble).requires_grad_(true), {}, c.cap};
    const auto exact = with_gradients(plain_kl(leaves, y, wanted, c.cap), leaves);
    const at::Tensor kl = head_kl(leaves[0], head_of(leaves, c.cap), y, wanted, c.piece);
    expect_near(with_gradients(kl, leaves), exact, 1e-12);
    EXPECT_NEAR(head_kl(y, wanted, y, wanted).item<double>(), 0, 1e-9);
  }
}

// Widths for each kernel: a warp with 1 and 4 octets, a block of 128 and of 512, rows that are read twice.
const std::vector<Case> kCudaCases = {
    {70, 16, 256},
    {9, 16, 5, true},
    {300, 16, 1000, true, 3, 128 * 1000},
    {300, 16, 4093, false, 0, 128 * 4096},
    {130, 24, 16384, false, 2},
    {200, 16, 32000, false, 0, 128 * 32000},
    {65, 16, 50257, false, 4}};

TEST(HeadLossCuda, AgreesWithTheDefinition) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const Case& c : kCudaCases) {
    const Problem p(c);
    const auto doubles = p.leaves(at::kCPU, at::kDouble);
    const auto exact = with_gradients(plain(doubles, p.targets, c.cap), doubles);
    const auto leaves = p.leaves(at::kCUDA, at::kFloat);
    ASSERT_TRUE(has_head_loss(leaves[0]));
    const at::Tensor targets = p.targets.to(at::kCUDA);
    const Head head = head_of(leaves, c.cap);
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(fmt::format("V = {}, bf16 = {}", c.V, bf16));
      const auto all = [&](auto&& loss) {
        at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
        at::autocast::set_autocast_enabled(at::kCUDA, bf16);
        const at::Tensor y = loss();
        at::autocast::set_autocast_enabled(at::kCUDA, false);
        at::autocast::clear_cache();
        return with_gradients(y, leaves);
      };
      const auto got = all([&] { return head_loss(leaves[0], head, targets, c.piece); });
      for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(got[i].scalar_type(), at::kFloat) << i;
      expect_near(got, exact, bf16 ? 2e-2 : 1e-5);
      if (!bf16) continue;
      const auto theirs = all([&] { return plain(leaves, targets, c.cap); });
      for (size_t i = 0; i < exact.size(); ++i) {  // not worse than torch in bf16
        const auto error = [&](const at::Tensor& y) {
          return (y.to(at::kCPU, at::kDouble) - exact[i]).norm().item<double>();
        };
        EXPECT_LE(error(got[i]), 2 * error(theirs[i]) + 1e-6 * exact[i].norm().item<double>()) << i;
      }
    }
  }
}

}  // namespace
}  // namespace horner
