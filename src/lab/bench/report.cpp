#include <algorithm>

#include "core/options.h"
#include "lab/bench/bench.h"

namespace horner {
namespace {

Json to_json(const Times& t) {
  if (t.median == 0) return nullptr;
  return {{"median", t.median}, {"p10", t.p10}, {"p90", t.p90}};
}

}  // namespace

size_t BenchReport::failed() const {
  return size_t(std::count_if(rows.begin(), rows.end(), [](const BenchRow& row) {
    return row.program == "horner" && !row.failure.empty();
  }));
}

// The last word of the GPU's name: "NVIDIA H200, 132 SMs, sm_90" is h200.
std::string short_device(const std::string& described) {
  const std::string name = described.substr(0, described.find(','));
  std::string word = name.substr(name.rfind(' ') + 1);
  for (char& c : word) c = char(std::tolower(c));
  return word;
}

Json BenchReport::json() const {
  Json all{
      {"device", device},
      {"commit", commit},
      {"versions", versions},
      {"copy_gb_per_s", copy_rate / 1e6},
      {"matmul_tflop_per_s", matmul_rate / 1e9},
      {"clock_mhz", clock_mhz},
      {"options", horner::to_json(options)},
      {"rows", Json::array()}};
  for (const BenchRow& row : rows) {
    const Dims& d = row.shape.dims;
    all["rows"].push_back(
        {{"program", row.program},
         {"op", row.op},
         {"variant", row.variant},
         {"shape", row.shape.name},
         {"dims", {{"B", d.B}, {"T", d.T}, {"H", d.H}, {"K", d.K}, {"V", d.V}}},
         {"form", row.form},
         {"calls", row.calls},
         {"tokens", row.tokens},
         {"forward_ms", to_json(row.forward)},
         {"both_ms", to_json(row.both)},
         {"eager_forward_ms", to_json(row.eager_forward)},
         {"eager_both_ms", to_json(row.eager_both)},
         {"floor_forward_ms", row.floor_forward},
         {"floor_both_ms", row.floor_both},
         {"binds", row.binds},
         {"error", row.error},
         {"error_allowed", row.allowed},
         {"error_of", row.worst},
         {"peer_forward_ms", row.peer_forward},
         {"peer_both_ms", row.peer_both},
         {"peak_bytes", row.bytes},
         {"failure", row.failure}}
    );
  }
  return all;
}

}  // namespace horner
