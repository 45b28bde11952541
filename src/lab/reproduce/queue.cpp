#include "lab/reproduce/queue.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <tuple>

#include "core/device.h"
#include "core/interrupt.h"
#include "lab/reproduce/plan.h"
#include "lab/reproduce/record.h"
#include "train/run_folder.h"

namespace horner {
namespace {

constexpr std::chrono::seconds kRecordEvery{30};

Effort scale_of(const ReproduceOptions& o) { return o.scale == "gpu" ? Effort::gpu : Effort::cpu; }

// The finding of a claim at a scale, judged by the claim as it is now.
std::optional<Finding> finding_of(
    const Reproduction& known, const Claim& claim, const std::string& scale
) {
  for (const Finding& f : known.findings) {
    if (f.claim == claim.name && f.scale == scale && !f.earlier && !f.rows.empty()) return f;
  }
  return {};
}

void set_status(Queued& q, const std::optional<Finding>& f, bool confirm) {
  q.status = "not yet run";
  q.open = !confirm;
  if (!f) return;
  q.status = words(f->verdict);
  const bool decided = f->verdict == Verdict::holds || f->verdict == Verdict::does_not_hold;
  if (!f->confirmed.empty()) q.status += ", confirmed: " + f->confirmed;
  const size_t seeds = f->rows[0].scores.size(), most = size_t(q.claim->protocol.looks().back());
  const bool more = f->verdict == Verdict::not_shown && seeds < most && q.claim->arms != nullptr;
  if (more) q.status += fmt::format(", {} of {} seeds", seeds, most);
  q.failed = std::any_of(f->rows.begin(), f->rows.end(), [](const ArmScores& row) {
    return !row.failure.empty();
  });
  if (q.failed) q.status += ", a run failed";
  q.open = confirm ? decided && f->confirmed.empty() : more || q.failed;
}

// The next claims of the queue whose runs share one pool. Each stage of a pool ends with its slowest run, so few large pools keep
// a GPU busier than many small ones. Claims that failed before are tested alone.
std::vector<const Queued*> next_of(
    const std::vector<Queued>& queue, size_t& at, bool pools, const ReproduceOptions& o
) {
  std::vector<const Queued*> list;
  std::vector<const Claim*> claims;
  for (; at < queue.size(); ++at) {
    const Queued& q = queue[at];
    if (!q.open) continue;
    claims.push_back(q.claim);
    const bool fits = first_looks(claims, scale_of(o)).minutes() <= o.pool;
    if (!list.empty() && (!pools || q.failed || !fits)) break;
    list.push_back(&q);
  }
  return list;
}

}  // namespace

std::vector<Queued> queue_of(const std::vector<const Paper*>& papers, const ReproduceOptions& o) {
  const Effort scale = scale_of(o);
  check_claims(papers, o.claim);
  std::vector<Queued> list;
  for (const Paper* paper : papers) {
    Reproduction known{paper, {}};
    const std::string path = o.out + "/" + paper->name + ".json";
    if (!o.out.empty() && std::filesystem::exists(path))
      read_from(path, [&](const Json& json) { known.add(json); });
    for (const Claim& claim : paper->claims) {
      if (!is_named(*paper, claim, o.claim)) continue;
      const std::vector<int64_t> looks = claim.protocol.looks();
      Queued q{
          paper,
          &claim,
          budget(claim, scale, looks.front()),
          budget(claim, scale, looks.back()),
          "",
          false};
      set_status(q, finding_of(known, claim, o.scale), o.confirm);
      list.push_back(q);
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const Queued& a, const Queued& b) {
    return std::tuple(a.failed, a.paper->survey, a.first.seconds) <
           std::tuple(b.failed, b.paper->survey, b.first.seconds);
  });
  return list;
}

void run_queue(
    const std::vector<const Paper*>& papers,
    const ReproduceOptions& o,
    const std::string& program,
    const RunsTell& tell,
    const std::function<void(Reproduction&)>& done
) {
  if (!o.record.empty()) restore_runs(o.record, o.runs);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto recorded = now();
  int64_t runs_done = 0;
  const RunsTell tell_and_record = [&](const RunsTick& tick) {
    if (tell) tell(tick);
    if (o.record.empty() || tick.runs_done == runs_done || now() < recorded + kRecordEvery) return;
    record_runs(o.record, o.runs);
    runs_done = tick.runs_done;
    recorded = now();
  };
  const std::vector<Queued> queue = queue_of(papers, o);
  size_t at = 0;
  const bool pools = o.jobs > 1 || (o.jobs == 0 && find_device(device_of(o)).is_cuda());
  while (!TimeLimit::reached()) {
    const std::vector<const Queued*> together = next_of(queue, at, pools, o);
    if (together.empty()) break;
    ReproduceOptions some = o;
    std::vector<const Paper*> of;
    some.claim.clear();
    for (const Queued* q : together) {
      some.claim.push_back(q->paper->name + "/" + q->claim->name);
      if (std::find(of.begin(), of.end(), q->paper) == of.end()) of.push_back(q->paper);
    }
    std::vector<Reproduction> all = reproduce(of, some, program, tell_and_record);
    if (!o.record.empty()) record_runs(o.record, o.runs);
    for (Reproduction& r : all) {
      if (!r.findings.empty()) done(r);
    }
  }
}

}  // namespace horner
