// The contract, for every op and variant on the list, on the CPU and on a GPU; and on random shapes.
#include "ops/contract.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cctype>

#include "core/device.h"
#include "ops/kernel.h"

namespace horner {
namespace {

struct Row {
  const Op* op;
  Variant variant;
  Property property;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.op->name << ", " << row.variant.name << ", " << row.property.name;
}

std::vector<Row> rows() {
  std::vector<Row> list;
  for (const Op& op : ops()) {
    for (const Variant& variant : op.variants) {
      for (const Property& property : contract()) list.push_back({&op, variant, property});
    }
  }
  return list;
}

std::string row_name(const testing::TestParamInfo<Row>& info) {
  std::string name = fmt::format(
      "{}_{}_{}", info.param.op->name, info.param.variant.name, info.param.property.name
  );
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

void expect_holds(const Row& row, at::Device device) {
  const Dims dims{.B = 2, .T = 37, .H = 4, .G = 2, .K = 5, .V = 6};
  const Measure m = row.property.measure({*row.op, row.variant, dims, device, 1});
  if (!m.applies)
    GTEST_SKIP() << "no such property: " << row.variant.name << ", " << row.property.name;
  EXPECT_LE(m.error, m.bound) << row.property.meaning;
}

class Contract : public testing::TestWithParam<Row> {};
TEST_P(Contract, Holds) { expect_holds(GetParam(), at::kCPU); }
INSTANTIATE_TEST_SUITE_P(Ops, Contract, testing::ValuesIn(rows()), row_name);

TEST(KernelsCuda, AreListed) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  for (const Op& op : ops()) {
    std::vector<std::string_view> forms;
    for (const Kernel& kernel : kernels(op.name)) forms.push_back(kernel.form);
    EXPECT_EQ(forms, op.kernels) << op.name;
  }
}

class ContractCuda : public testing::TestWithParam<Row> {};
TEST_P(ContractCuda, Holds) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_holds(GetParam(), at::Device(at::kCUDA, 0));
}
INSTANTIATE_TEST_SUITE_P(Ops, ContractCuda, testing::ValuesIn(rows()), row_name);

// Any shape, any chunk, any cut: the forms agree, the sequence splits, packed sequences stay apart.
void expect_holds_at_random(const Op& op) {
  const Variant variant = *rc::gen::elementOf(op.variants);
  const int64_t G = *rc::gen::inRange(1, 4), r = *rc::gen::inRange(1, 4);
  const Dims dims{
      .B = *rc::gen::inRange(1, 4),
      .T = *rc::gen::inRange(1, 40),
      .H = G * r,
      .G = G,
      .K = *rc::gen::inRange(1, 7),
      .V = *rc::gen::inRange(1, 7)};
  const int64_t T = dims.T, cut = *rc::gen::inRange<int64_t>(0, T + 1);
  const Case c{op, variant, dims, at::kCPU, uint64_t(*rc::gen::inRange(0, 1000))};
  const Inputs in = sample_inputs(c, at::kDouble);
  Options definition = variant.options, chunked = variant.options;
  definition.form = "recurrent";
  chunked.form = "chunked";
  chunked.chunk = *rc::gen::inRange(1, 50);
  chunked.final_state = true;
  const at::Tensor whole = run(op, in, {}, definition).o;
  RC_ASSERT(relative_error(run(op, in, {}, chunked).o, whole) < 1e-9);

  const bool inner = 0 < cut && cut < T;
  if (inner && variant.options.causal) {
    const Result first = run(op, tokens(op, in, 0, cut), {}, chunked);
    const Result second = run(op, tokens(op, in, cut, T - cut), first.state, chunked);
    RC_ASSERT(relative_error(at::cat({first.o, second.o}, 1), whole) < 1e-9);
  }
  if (inner && dims.B == 1) {
    Inputs packed = in;
    packed.cu_seqlens = at::tensor({int64_t(0), cut, T}, at::kLong);
    const at::Tensor apart = at::cat(
        {run(op, tokens(op, in, 0, cut), {}, definition).o,
         run(op, tokens(op, in, cut, T - cut), {}, definition).o},
        1
    );
    RC_ASSERT(relative_error(run(op, packed, {}, chunked).o, apart) < 1e-9);
  }
}

TEST(Contract, HoldsForRandomShapes) {
  for (const Op& op : ops()) {
    EXPECT_TRUE(rc::check(std::string(op.name), [&] { expect_holds_at_random(op); })) << op.name;
  }
}

}  // namespace
}  // namespace horner
