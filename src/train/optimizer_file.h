// What a checkpoint holds of the optimiser, in one file or in shards.
//
//   optimizer.safetensors                       mean.NAME, square.NAME, weight.NAME (if there are averages), steps
//   optimizer-00001-of-00004.safetensors ...    the same names; each holds a stretch of a parameter's numbers, flat
//   optimizer.safetensors.index.json            {"processes": 4, "parts": {NAME: [[begin, end, FILE], ...]}}
//
// Either is read by any number of processes: each one takes the numbers that it owns from the files that hold them.
#pragma once

#include <map>

#include "core/json.h"
#include "io/safetensors.h"

namespace horner {

class Optimizer;

inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kOptimizerIndex = "optimizer.safetensors.index.json";
std::string shard_file(int64_t rank, int64_t world);  // optimizer-00001-of-00004.safetensors
Json shard_index(const Optimizer& optimizer);         // of all processes

class OptimizerSource {
 public:
  explicit OptimizerSource(const std::string& checkpoint);  // DataError if something is missing
  at::Tensor steps() const;
  // Numbers begin .. end of kind.name, into a flat tensor.
  void read(
      const std::string& kind,
      const std::string& name,
      int64_t begin,
      int64_t end,
      const at::Tensor& into
  ) const;

 private:
  struct Place {
    int64_t begin, end;
    const Safetensors* file;
  };
  std::string path_;                                  // for errors
  std::map<std::string, Safetensors> files_;          // by name
  std::map<std::string, std::vector<Place>> places_;  // of shards, by the parameter's name
};

}  // namespace horner
