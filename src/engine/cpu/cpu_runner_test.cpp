// The CPU decoder behind the engine's interface, against Model::forward behind the same interface.
#include "engine/cpu/cpu_runner.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

namespace horner {
namespace {

struct Both {
  std::shared_ptr<Model> model;
  std::unique_ptr<Runner> plain, cpu;
  Both() {
    ModelOptions o;
    o.pattern = {"softmax:heads=4,groups=2"};
    o.layers = 2, o.D = 64, o.vocabulary = 50;
    model = make_model(o, 5);
    model->eval();
    plain = model_runner(model);
    cpu = cpu_runner(std::make_unique<CpuDecoder>(*model, "fp32"), 4096);
  }
};

bool near(const at::Tensor& x, const at::Tensor& y) {
  return ((x - y).norm() / y.norm()).item<double>() < 1e-5;
}

TEST(CpuRunner, GivesTheLogitsOfModelForward) {
  Both both;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 540; ++i) tokens.push_back(i * 7 % 50);
  const std::span<const int32_t> all = tokens;
  const auto a = both.plain->open(), b = both.cpu->open();
  at::Tensor wanted, got;
  both.plain->read(*a, all, &wanted);
  both.cpu->read(*b, all, &got);
  EXPECT_TRUE(near(got, wanted));

  const auto second_a = both.plain->open(), second_b = both.cpu->open();
  both.plain->read(*second_a, all.first(9));
  both.cpu->read(*second_b, all.first(9));
  const int32_t next[] = {3, 4};
  for (int i = 0; i < 3; ++i) {
    StreamState* const plain[] = {a.get(), second_a.get()};
    StreamState* const cpu[] = {b.get(), second_b.get()};
    EXPECT_TRUE(near(both.cpu->step(cpu, next), both.plain->step(plain, next))) << i;
  }
}

TEST(CpuRunner, ForksShareMemoryAndGoTheirOwnWays) {
  Both both;
  const auto stream = both.cpu->open();
  EXPECT_EQ(both.cpu->bytes(*stream), 0);
  both.cpu->read(*stream, std::vector<int32_t>(300, 1));
  const auto fork = both.cpu->fork(*stream);
  const StreamState* const pair[] = {stream.get(), fork.get()};
  const int64_t two_pages = both.cpu->held_bytes(pair);
  EXPECT_EQ(512 * both.cpu->bytes(*stream), 300 * two_pages);  // what 300 tokens fill of 512
  StreamState* const one[] = {stream.get()};
  StreamState* const other[] = {fork.get()};
  const int32_t left[] = {2}, right[] = {3};
  const at::Tensor x = both.cpu->step(one, left).clone();
  both.cpu->step(other, right);
  both.cpu->step(one, left);
  const auto again = both.cpu->open();
  both.cpu->read(*again, std::vector<int32_t>(300, 1));
  StreamState* const fresh[] = {again.get()};
  EXPECT_TRUE(near(both.cpu->step(fresh, left), x));
  EXPECT_EQ(2 * both.cpu->held_bytes(pair), 3 * two_pages);  // two pages each, one shared
  EXPECT_EQ(both.cpu->longest(), 4096);
}

}  // namespace
}  // namespace horner
