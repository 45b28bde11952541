#include "lab/bench/peers.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <filesystem>

#include "core/check.h"
#include "lab/process.h"

namespace horner {
namespace {

constexpr const char* kScript = "tools/bench_peers.py";

Times times_from(const Json& json) {
  if (json.is_null()) return {};
  return {json.at("median"), json.at("p10"), json.at("p90")};
}

// A line of the script: {"versions": [..]} or a row.
void add_line(const Json& json, BenchReport& report) {
  if (json.contains("versions")) {
    for (const auto& version : json["versions"]) report.versions.push_back(version);
    return;
  }
  BenchRow row;
  row.program = json.at("program");
  row.op = json.at("op");
  row.variant = json.at("variant");
  for (const BenchRow& other : report.rows) {
    if (other.shape.name == json.at("shape")) row.shape = other.shape;
  }
  row.form = json.at("form");
  row.forward = times_from(json.at("forward_ms"));
  row.both = times_from(json.at("both_ms"));
  row.eager_forward = times_from(json.at("eager_forward_ms"));
  row.eager_both = times_from(json.at("eager_both_ms"));
  row.failure = json.at("failure");
  report.rows.push_back(row);
}

}  // namespace

void check_peers(const std::string& folder, at::Device device) {
  HORNER_CHECK(device.is_cuda(), "peers run on a GPU, not on {}", device.str());
  HORNER_CHECK(
      std::filesystem::exists(folder + "/fla/__init__.py"),
      "peers: {} holds no package fla (unpack flash-linear-attention's wheel there)",
      folder
  );
  HORNER_CHECK(
      std::filesystem::exists(kScript), "peers: {} is not here; run in the repository", kScript
  );
}

void run_peers(
    const BenchOptions& options, BenchReport& report, const std::function<void()>& added
) {
  Json rows = Json::array();  // what is timed here, except single tokens
  for (const BenchRow& row : report.rows) {
    const Dims& d = row.shape.dims;
    if (row.program != "horner" || d.T == 1) continue;
    rows.push_back(
        {{"op", row.op},
         {"variant", row.variant},
         {"shape", row.shape.name},
         {"dims", {d.B, d.T, d.H, d.K, d.V}}}
    );
  }
  c10::getDeviceAllocator(at::kCUDA)->emptyCache();  // they need memory of their own
  const std::vector<std::string> words = {
      "python3",
      kScript,
      "--folder",
      options.peers,
      "--rows",
      rows.dump(),
      "--repeats",
      std::to_string(options.repeats)};
  const int status = run_program(words, [&](const std::string& line) {
    if (!line.starts_with('{')) return;  // what a library prints
    add_line(parse_json(line, kScript), report);
    added();
  });
  if (status == 0) return;
  BenchRow row{.program = "fla"};
  row.failure = fmt::format("{} ended with status {}", kScript, status);
  report.rows.push_back(row);
}

}  // namespace horner
