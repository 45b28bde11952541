// Initial weights from (seed, name): a tensor starts the same in any model.
//
//   const Initial all(seed);          from here on torch's CPU generator is seeded by names
//   { const Initial own("layer_0");   by hash(seed, "layer_0"), until the brace closes
//     { const Initial q("q"); .. } }  by hash(hash(seed, "layer_0"), "q")
//
// Each scope restores the generator at its end, so draws inside it change nothing outside. Without a seed in an outer scope,
// names do nothing.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <string_view>

namespace horner {

class Initial {
 public:
  explicit Initial(uint64_t seed);
  explicit Initial(std::string_view name);
  Initial(const Initial&) = delete;
  Initial& operator=(const Initial&) = delete;
  ~Initial();

 private:
  void enter(uint64_t key);

  std::optional<uint64_t> outer_;
  at::Generator before_;  // undefined: this scope does nothing
};

uint64_t mix(uint64_t key, std::string_view name);  // FNV-1a, then a finaliser
uint64_t mix(uint64_t key, uint64_t number);

}  // namespace horner
