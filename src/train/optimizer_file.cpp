#include "train/optimizer_file.h"

#include <ATen/Functions.h>

#include <filesystem>

#include "core/check.h"
#include "train/optimizer.h"
#include "train/run_folder.h"

namespace horner {

std::string shard_file(int64_t rank, int64_t world) {
  return fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank + 1, world);
}

Json shard_index(const Optimizer& optimizer) {
  const int64_t world = optimizer.share().world;
  std::map<std::string, std::vector<Json>> parts;
  for (int64_t rank = 0; rank < world; ++rank) {
    for (const Optimizer::Owned& part : optimizer.owned(rank))
      parts[part.piece->name].push_back({part.begin, part.end, shard_file(rank, world)});
  }
  return {{"processes", world}, {"parts", parts}};
}

OptimizerSource::OptimizerSource(const std::string& checkpoint)
    : path_(checkpoint + "/" + kOptimizerIndex) {
  if (!std::filesystem::exists(path_)) {
    path_ = checkpoint + "/" + kOptimizerFile;
    files_.emplace(kOptimizerFile, Safetensors::open(path_));
    return;
  }
  read_from(path_, [&](const Json& index) {
    const int64_t world = index.at("processes");
    for (int64_t rank = 0; rank < world; ++rank) {
      const std::string name = shard_file(rank, world);
      files_.emplace(name, Safetensors::open(checkpoint + "/" + name));
    }
    for (const auto& [name, parts] : index.at("parts").items()) {
      for (const Json& part : parts) {
        const auto file = files_.find(part.at(2).get<std::string>());
        if (file == files_.end())
          throw DataError("{}: {} is in a file that is not of this checkpoint", path_, name);
        places_[name].push_back({part.at(0), part.at(1), &file->second});
      }
    }
    return 0;
  });
}

at::Tensor OptimizerSource::steps() const { return files_.begin()->second.get("steps"); }

void OptimizerSource::read(
    const std::string& kind,
    const std::string& name,
    int64_t begin,
    int64_t end,
    const at::Tensor& into
) const {
  const std::string whole = fmt::format("{}.{}", kind, name);
  const auto copy = [&](const at::Tensor& from, int64_t first, int64_t last) {
    if (from.numel() != last - first)
      throw DataError("{}: {} has {} numbers, not {}", path_, whole, from.numel(), last - first);
    const int64_t a = std::max(begin, first), b = std::min(end, last);
    if (a < b) into.narrow(0, a - begin, b - a).copy_(from.flatten().narrow(0, a - first, b - a));
    return std::max<int64_t>(b - a, 0);
  };
  int64_t found = 0;
  if (const auto parts = places_.find(name); parts != places_.end()) {
    for (const Place& part : parts->second) {
      if (part.begin < end && begin < part.end)
        found += copy(part.file->get(whole), part.begin, part.end);
    }
  } else if (places_.empty()) {
    const at::Tensor from = files_.begin()->second.get(whole);
    found = copy(from, 0, from.numel());
  }
  if (found != end - begin)
    throw DataError("{}: has {} of the {} numbers of {}", path_, found, end - begin, whole);
}

}  // namespace horner
