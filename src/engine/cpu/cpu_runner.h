// The CPU decoder as a Runner of the engine: streams of any lengths step together, forks share pages.
#pragma once

#include "engine/cpu/decoder.h"
#include "engine/runner.h"

namespace horner {

// longest: most tokens of a stream; 0: any number.
std::unique_ptr<Runner> cpu_runner(std::unique_ptr<CpuDecoder> decoder, int64_t longest = 0);

}  // namespace horner
