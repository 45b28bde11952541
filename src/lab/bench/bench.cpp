#include "lab/bench/bench.h"

#include <algorithm>

#include "core/check.h"
#include "core/device.h"
#include "core/version.h"
#include "lab/bench/peers.h"
#include "lab/bench/time.h"

namespace horner {
namespace {

// The fastest peer that computes the same function. Without one: softmax; for one token: the copy of the state.
void compare_with_peers(BenchReport& report) {
  for (BenchRow& row : report.rows) {
    if (row.program != "horner") continue;
    row.peer_forward = row.peer_both = 0;
    for (const bool same : {true, false}) {
      for (const BenchRow& peer : report.rows) {
        const bool counts =
            same ? peer.op == row.op && peer.variant == row.variant : find_op(peer.op).keeps_tokens;
        if (peer.program == "horner" || !counts || peer.shape.name != row.shape.name) continue;
        const auto faster = [](double& best, const Times& graph, const Times& eager) {
          const double ms = graph.median > 0 ? graph.median : eager.median;
          if (ms > 0 && (best == 0 || ms < best)) best = ms;
        };
        faster(row.peer_forward, peer.forward, peer.eager_forward);
        faster(row.peer_both, peer.both, peer.eager_both);
      }
      if (row.peer_forward > 0) break;
    }
  }
}

}  // namespace

BenchReport bench_ops(const BenchOptions& options, const Tell& tell, const BenchKeep& keep) {
  HORNER_CHECK(options.repeats >= 1, "repeats must be at least 1, got {}", options.repeats);
  const at::Device device = find_device(options.device);
  const std::vector<BenchJob> list = bench_jobs(options, device.is_cpu());
  if (!options.peers.empty()) check_peers(options.peers, device);
  BenchReport report{.options = options, .device = describe_device(device), .commit = commit()};
  measure_ceilings(report, device);
  std::vector<BenchShape> used;
  for (const BenchJob& job : list) {
    tell(size_t(&job - list.data()), list.size(), job.op.name, job.shape.name);
    try {
      report.rows.push_back(time_job(job, report, device));
      if (job.subject.past > 0) {
        report.rows.push_back(time_cached_sdpa(job, report, device));
      } else if (job.shape.dims.T == 1) {
        report.rows.push_back(time_copy(job, report, device));
      }
    } catch (const c10::Error& error) {
      BenchRow row{
          .program = "horner",
          .op = job.subject.op,
          .variant = job.subject.variant,
          .shape = job.shape};
      row.failure = error.what_without_backtrace();
      row.failure = row.failure.substr(0, row.failure.find('\n'));
      report.rows.push_back(row);
    }
    keep(report);
    const bool seen = std::any_of(used.begin(), used.end(), [&](const BenchShape& shape) {
      return shape.name == job.shape.name;
    });
    if (!seen) used.push_back(job.shape);
  }
  if (device.is_cuda()) {
    for (const BenchShape& shape : used) {
      if (shape.dims.T == 1) continue;
      for (const char* backend : {"cuDNN", "flash"})
        report.rows.push_back(time_sdpa(backend, shape, report));
    }
  }
  compare_with_peers(report);
  keep(report);
  if (options.peers.empty()) return report;
  run_peers(options, report, [&] {
    compare_with_peers(report);
    keep(report);
  });
  return report;
}

}  // namespace horner
