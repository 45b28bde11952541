// The contract on this machine: every form of every op that the device has, or every mixer; every variant, every property.
// Plain forms run at the user's shape, kernels also at shapes that they are made for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "ops/contract.h"

namespace horner {

struct VerifyOptions {
  std::vector<std::string> op;
  bool mixers = false;
  std::vector<std::string> mixer;
  std::string device = "auto";
  int64_t seed = 0;
  int64_t B = 2, T = 37, H = 4, G = 2, K = 8, V = 8, D = 16;

  template <class Visitor>
  void visit(Visitor&& visit) {
    visit("op", op, "ops to verify; empty: all");
    visit("mixers", mixers, "the contract of the mixers instead");
    visit("mixer", mixer, "mixers to verify; empty: all");
    visit("device", device, "auto, cpu, cuda or cuda:N");
    visit("seed", seed, "seed of the random inputs");
    visit("B", B, "batch");
    visit("T", T, "time: tokens");
    visit("H", H, "query heads");
    visit("G", G, "key/value heads; H is a multiple of G");
    visit("K", K, "key dim");
    visit("V", V, "value dim");
    visit("D", D, "model dim of the mixers");
  }
};

struct VerifyRow {
  std::string_view subject;  // op or mixer
  std::string_view form;     // of an op
  std::string variant;
  std::string_view property, meaning;
  Measure measure;
  std::string failure;  // why it could not be measured
  bool holds() const { return failure.empty() && measure.holds(); }
};

struct VerifyReport {
  VerifyOptions options;
  std::string device;
  std::vector<VerifyRow> rows;  // those that apply
  size_t failed() const;
  Json json() const;
};

// `tell(done, total, op, property)` before each measurement.
using Tell = std::function<void(size_t, size_t, std::string_view, std::string_view)>;
VerifyReport verify(const VerifyOptions&, const Tell& tell);

}  // namespace horner
