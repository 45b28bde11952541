// The contract that every mixer keeps, as measurements. The tests assert it, `horner verify` prints
// it.
#pragma once

#include "mixers/mixer.h"
#include "ops/contract.h"

namespace horner {

// What a property is measured on.
struct MixerCase {
  const MixerType& type;
  std::string options;  // "order=4,norm=sum"
  int64_t B = 2, T = 19, D = 16;
  at::Device device = at::kCPU;
  uint64_t seed = 0;
};

struct MixerProperty {
  std::string_view name;
  std::string_view meaning;
  Measure (*of_case)(const MixerCase&);
  bool (*applies)(const MixerCase&);  // whether the mixer of these options has such a property
  Measure measure(const MixerCase& c) const {
    return applies(c) ? of_case(c) : Measure{.applies = false};
  }
};

// THE list of properties.
const std::vector<MixerProperty>& mixer_contract();

// The mixer of the case's seed, and a standard normal input.
std::shared_ptr<Mixer> sample_mixer(const MixerCase&, at::ScalarType);
at::Tensor sample_tokens(const MixerCase&, at::ScalarType);  // (B,T,D)

}  // namespace horner
