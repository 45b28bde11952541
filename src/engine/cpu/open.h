// A decoder for an opened model: blocks of a GGUF file as they are, or weights of another type.
#pragma once

#include "engine/cpu/decoder.h"
#include "model/formats/formats.h"

namespace horner {

// weights: auto, fp32, bf16, q8 or q4 (decoder.h). Types other than auto need a model that was opened with its values.
std::unique_ptr<CpuDecoder> cpu_decoder(const LoadedModel& model, const std::string& weights);

}  // namespace horner
