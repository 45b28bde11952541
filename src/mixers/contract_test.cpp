// The contract, for every mixer and variant on the list, on the CPU and on a GPU.
#include "mixers/contract.h"

#include <gtest/gtest.h>

#include <cctype>

#include "core/device.h"

namespace horner {
namespace {

struct Row {
  const MixerType* type;
  std::string options;
  MixerProperty property;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.type->name << " " << row.options << ", " << row.property.name;
}

MixerCase case_of(const MixerType& type, const std::string& options, at::Device device) {
  return {type, options, 2, 19, 16, device, 1};
}

std::vector<Row> all_rows() {
  std::vector<Row> list;
  for (const MixerType& type : mixers()) {
    for (const std::string& options : type.variants) {
      for (const MixerProperty& property : mixer_contract()) {
        if (property.applies(case_of(type, options, at::kCPU)))
          list.push_back({&type, options, property});
      }
    }
  }
  return list;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> list = all_rows();
  return list;
}

std::string row_name(const testing::TestParamInfo<Row>& info) {
  const Row& row = info.param;
  std::string name = fmt::format("{}_{}_{}", row.type->name, row.options, row.property.name);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

void expect_holds(const Row& row, at::Device device) {
  const Measure m = row.property.measure(case_of(*row.type, row.options, device));
  EXPECT_LE(m.error, m.bound) << row.property.meaning;
}

class MixerContract : public testing::TestWithParam<Row> {};
TEST_P(MixerContract, Holds) { expect_holds(GetParam(), at::kCPU); }
INSTANTIATE_TEST_SUITE_P(Mixers, MixerContract, testing::ValuesIn(rows()), row_name);

class MixerContractCuda : public testing::TestWithParam<Row> {};
TEST_P(MixerContractCuda, Holds) {
  if (!open_cuda().empty()) GTEST_SKIP() << open_cuda();
  expect_holds(GetParam(), at::Device(at::kCUDA, 0));
}
INSTANTIATE_TEST_SUITE_P(Mixers, MixerContractCuda, testing::ValuesIn(rows()), row_name);

}  // namespace
}  // namespace horner
