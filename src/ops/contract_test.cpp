// The contract, for every op and variant on the list, on the CPU and on a GPU; and on random shapes.
#include "ops/contract.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cctype>

#include "core/device.h"

namespace horner {
namespace {

const Dims kDims{.B = 2, .T = 37, .H = 4, .G = 2, .K = 5, .V = 6};
constexpr uint64_t kSeed = 1;

struct Row {
  const Op* op;
  const Form* form;
  Property property;

  std::vector<Case> cases(at::Device device) const {
    std::vector<Case> list;
    for (const Case& c : cases_of(*op, *form, kDims, device, kSeed)) {
      if (property.applies == nullptr || property.applies(c)) list.push_back(c);
    }
    return list;
  }
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.op->name << ", " << row.form->name << ", " << row.property.name;
}

std::string plain_name(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// Every form that a CPU has, every property that some variant has.
std::vector<Row> rows() {
  std::vector<Row> list;
  for (const Op& op : ops()) {
    for (const Form& form : op.forms) {
      if (form.place == Place::cuda) continue;
      for (const Property& property : contract()) {
        const Row row{&op, &form, property};
        if (!row.cases(at::kCPU).empty()) list.push_back(row);
      }
    }
  }
  return list;
}

void expect_holds(const Case& c, const Property& property) {
  const Measure m = measured(property, c);
  EXPECT_LE(m.error, m.bound) << fmt::format(
      "{}, {}, {}, {}: {} (T {} K {} V {})",
      c.op.name,
      c.variant.name,
      c.form_name(),
      property.name,
      property.meaning,
      c.dims.T,
      c.dims.K,
      c.dims.V
  );
}

class Contract : public testing::TestWithParam<Row> {};
TEST_P(Contract, Holds) {
  for (const Case& c : GetParam().cases(at::kCPU)) expect_holds(c, GetParam().property);
}
INSTANTIATE_TEST_SUITE_P(
    Ops,
    Contract,
    testing::ValuesIn(rows()),
    [](const testing::TestParamInfo<Row>& info) {
      const Row& row = info.param;
      return plain_name(fmt::format("{}_{}_{}", row.op->name, row.form->name, row.property.name));
    }
);

// With V = K torch's CPU attention takes another path, which returns the log-normaliser.
TEST(ContractOfEqualWidths, HoldsForFusedAttentionWithValuesAsWideAsKeys) {
  const Op& op = find_op("attention");
  Dims dims = kDims;
  dims.V = dims.K;
  const auto cases = cases_of(op, *op.form(forms::kFusedChunked), dims, at::kCPU, kSeed);
  ASSERT_FALSE(cases.empty());
  for (const Case& c : cases) {
    for (const Property& property : contract()) {
      if (property.applies == nullptr || property.applies(c)) expect_holds(c, property);
    }
  }
}

struct OpForm {
  const Op* op;
  std::string_view form;
};
void PrintTo(const OpForm& x, std::ostream* out) { *out << x.op->name << ", " << x.form; }

std::vector<OpForm> op_forms() {
  std::vector<OpForm> list;
  for (const Op& op : ops()) {
    for (const Form& form : op.forms) {
      if (form.place != Place::cpu) list.push_back({&op, form.name});
    }
  }
  return list;
}

// Every form that a GPU has, kernels at shapes that they take: all properties.
class ContractCuda : public testing::TestWithParam<OpForm> {};
TEST_P(ContractCuda, Holds) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  const Op& op = *GetParam().op;
  const Form& form = *op.form(GetParam().form);
  ASSERT_NE(form.forward, nullptr) << "libhorner_cuda.so does not implement it";
  const auto cases = cases_of(op, form, kDims, at::Device(at::kCUDA, 0), kSeed);
  EXPECT_FALSE(cases.empty()) << "it takes none of the shapes";
  for (const Case& c : cases) {
    for (const Property& property : contract()) {
      if (property.applies == nullptr || property.applies(c)) expect_holds(c, property);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Ops,
    ContractCuda,
    testing::ValuesIn(op_forms()),
    [](const testing::TestParamInfo<OpForm>& info) {
      return plain_name(fmt::format("{}_{}", info.param.op->name, info.param.form));
    }
);

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
