// fuzz-sources: src/model/formats/config.cpp src/io/gguf_header.cpp src/io/gguf_blocks.cpp src/core/json.cpp
//
// Any config.json, index of shards or GGUF metadata is refused with a DataError, or gives sizes that can be computed with.
#include <cstdlib>

#include "core/check.h"
#include "model/formats/config.h"

namespace horner {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const ModelConfig& c) {
  for (const int64_t size : {c.layers, c.D, c.heads, c.groups, c.head, c.mlp_dim, c.vocabulary})
    require(size >= 1 && size <= int64_t{1} << 30);
  require(c.heads % c.groups == 0 && c.window >= 0 && c.segments >= 0);
  require(c.norm_eps >= 0 && c.rope_base >= 1 && c.scaling_factor >= 1);
}

void parse(std::string_view bytes) {
  if (bytes.starts_with("GGUF")) {
    check(read_config(parse_gguf(bytes, "fuzz")));
  } else if (bytes.starts_with('[')) {
    for (const auto& [name, file] : read_index(bytes.substr(1), "fuzz"))
      require(!file.empty() && file.find('/') == std::string::npos);
  } else {
    check(read_config(parse_json(bytes, "fuzz"), "fuzz"));
  }
}

}  // namespace
}  // namespace horner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    horner::parse({reinterpret_cast<const char*>(data), size});
  } catch (const horner::DataError&) {
  }
  return 0;
}
