#include "lab/bench/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/check.h"
#include "nn/part.h"

namespace horner {
namespace {

namespace impl = torch::profiler::impl;
using torch::autograd::profiler::KinetoEvent;

constexpr const char* kIdle = "idle";
constexpr uint8_t kOperation = 0;  // libkineto::ActivityType::CPU_OP

// An operation on the CPU, and the operation that called it.
struct Call {
  const KinetoEvent* event;
  std::string name, part;  // an empty part is that of the caller
  int64_t caller = -1;
  uint64_t inner = 0;  // ns of what it calls
};

class Marks {
 public:
  explicit Marks(const std::vector<PartMark>& all) {
    for (const PartMark& mark : all) by_thread_[mark.thread].push_back(mark);
  }
  // The part that was open when autograd made the node.
  std::string part(uint64_t thread, int64_t sequence) const {
    const auto found = by_thread_.find(thread);
    if (found == by_thread_.end() || sequence < 0) return "";
    const auto after = std::upper_bound(
        found->second.begin(),
        found->second.end(),
        uint64_t(sequence),
        [](uint64_t s, const PartMark& mark) { return s < mark.sequence; }
    );
    return after == found->second.begin() ? "" : std::prev(after)->part;
  }

 private:
  std::map<uint64_t, std::vector<PartMark>> by_thread_;
};

// Gradients of parameters are added into the optimiser's vectors.
std::string part_of(const Call& call, const Marks& marks) {
  if (call.name.starts_with(kPartPrefix))
    return call.name.substr(std::string_view(kPartPrefix).size());
  if (call.name.find("AccumulateGrad") != std::string::npos) return parts::kOptimiser;
  if (call.event->scope() == uint8_t(at::RecordScope::BACKWARD_FUNCTION))
    return marks.part(call.event->fwdThreadId(), call.event->sequenceNr());
  return "";
}

std::vector<Call> find_calls(const std::vector<KinetoEvent>& events, const Marks& marks) {
  std::vector<Call> calls;
  for (const KinetoEvent& event : events) {
    if (event.deviceType() == at::kCPU && event.activityType() == kOperation && !event.isAsync())
      calls.push_back({&event, event.name(), {}, -1, 0});
  }
  std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
    const KinetoEvent &x = *a.event, &y = *b.event;
    if (x.startThreadId() != y.startThreadId()) return x.startThreadId() < y.startThreadId();
    return x.startNs() != y.startNs() ? x.startNs() < y.startNs() : x.endNs() > y.endNs();
  });
  std::vector<int64_t> open;
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    while (!open.empty() &&
           (calls[size_t(open.back())].event->startThreadId() != call.event->startThreadId() ||
            calls[size_t(open.back())].event->endNs() <= call.event->startNs()))
      open.pop_back();
    call.part = part_of(call, marks);
    if (!open.empty()) {
      call.caller = open.back();
      Call& caller = calls[size_t(open.back())];
      caller.inner += call.event->durationNs();
      // The engine adds up a node's results after the node, inside an event of its own.
      if (caller.part.empty() && caller.name.starts_with("autograd::engine"))
        caller.part = call.part;
    }
    open.push_back(int64_t(i));
  }
  for (Call& call : calls) {  // callers stand before what they call
    if (call.part.empty() && call.caller >= 0) call.part = calls[size_t(call.caller)].part;
    if (call.part.empty()) call.part = parts::kOther;
  }
  return calls;
}

// "void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)" -> without "void ", at most 100 characters
std::string short_name(std::string name) {
  if (name.starts_with("void ")) name = name.substr(5);
  for (const char* noise : {"at::native::", "(anonymous namespace)::", "horner::cuda::"}) {
    for (size_t at = name.find(noise); at != std::string::npos; at = name.find(noise))
      name.erase(at, std::string_view(noise).size());
  }
  return name.size() > 100 ? name.substr(0, 97) + "..." : name;
}

class Sums {
 public:
  explicit Sums(int64_t steps) : steps_(double(steps)) {}
  void add(const std::string& name, const std::string& part, uint64_t ns) {
    const double ms = double(ns) / 1e6 / steps_;
    parts_[part] += ms;
    auto& [calls, total] = kernels_[{name, part}];
    calls += 1 / steps_;
    total += ms;
  }
  StepProfile result() const {
    StepProfile p;
    for (const auto& [part, ms] : parts_) p.parts.push_back({part, ms});
    for (const auto& [key, sum] : kernels_)
      p.kernels.push_back({key.first, key.second, std::llround(sum.first), sum.second});
    const auto longest = [](const auto& a, const auto& b) {
      return a.milliseconds > b.milliseconds;
    };
    std::stable_sort(p.parts.begin(), p.parts.end(), longest);
    std::stable_sort(p.kernels.begin(), p.kernels.end(), longest);
    return p;
  }

 private:
  double steps_;
  std::map<std::string, double> parts_;
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> kernels_;
};

StepProfile summed(
    const std::vector<KinetoEvent>& events, const Marks& marks, int64_t steps, bool gpu
) {
  const std::vector<Call> calls = find_calls(events, marks);
  Sums sums(steps);
  if (!gpu) {
    for (const Call& call : calls) {
      const uint64_t whole = call.event->durationNs();
      sums.add(call.name, call.part, whole - std::min(whole, call.inner));
    }
    return sums.result();
  }
  std::map<uint64_t, const Call*> by_id;
  for (const Call& call : calls) by_id.emplace(call.event->correlationId(), &call);
  for (const KinetoEvent& event : events) {
    if (event.deviceType() != at::kCUDA || event.durationNs() == 0) continue;
    if (event.name().starts_with(kPartPrefix)) continue;  // a range, not a kernel
    const auto call = by_id.find(event.linkedCorrelationId());
    const std::string part = call == by_id.end() ? parts::kOther : call->second->part;
    sums.add(short_name(event.name()), part, event.durationNs());
  }
  return sums.result();
}

}  // namespace

double StepProfile::busy() const {
  double sum = 0;
  for (const PartTime& p : parts) sum += p.part == kIdle ? 0 : p.milliseconds;
  return sum;
}

void StepProfile::add_idle(double step_milliseconds) {
  parts.push_back({kIdle, std::max(0.0, step_milliseconds - busy())});
}

Json StepProfile::json() const {
  Json json = {{"parts", Json::array()}, {"kernels", Json::array()}};
  for (const PartTime& p : parts)
    json["parts"].push_back({{"part", p.part}, {"milliseconds", p.milliseconds}});
  for (const KernelTime& k : kernels) {
    json["kernels"].push_back(
        {{"name", k.name}, {"part", k.part}, {"calls", k.calls}, {"milliseconds", k.milliseconds}}
    );
  }
  return json;
}

StepProfile profile_steps(const std::function<void()>& step, int64_t steps, at::Device device) {
  namespace profiler = torch::autograd::profiler;
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO);
  std::set<impl::ActivityType> activities = {impl::ActivityType::CPU};
  if (device.is_cuda()) activities.insert(impl::ActivityType::CUDA);
  setenv("KINETO_LOG_LEVEL", "5", 0);  // it complains on stderr where there is no GPU
  profiler::prepareProfiler(config, activities);
  take_part_marks();
  record_parts(true);
  profiler::enableProfiler(config, activities);
  std::exception_ptr failure;
  try {
    for (int64_t i = 0; i < steps; ++i) step();
  } catch (...) {
    failure = std::current_exception();
  }
  const auto result = profiler::disableProfiler();
  record_parts(false);
  const Marks marks(take_part_marks());
  if (failure) std::rethrow_exception(failure);
  return summed(result->events(), marks, steps, device.is_cuda());
}

}  // namespace horner
