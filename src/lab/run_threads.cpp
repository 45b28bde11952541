#include "lab/run_threads.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/device.h"
#include "core/interrupt.h"
#include "lab/pool.h"
#include "train/cost.h"

namespace horner {
namespace {

constexpr double kMostBytes = 24e9;     // of activations, over all runs at once
constexpr double kBytesOfNumber = 100;  // that a token's number of a layer leaves for the backward
constexpr size_t kMostRuns = 16;

// Runs that threads take one after the other, and how far they are.
class Shared {
 public:
  Shared(const std::vector<const TrainOptions*>& runs, std::vector<RunOutcome>& outcomes)
      : runs_(runs), outcomes_(outcomes), steps_(runs.size()), starved_(runs.size()) {}

  void work() {
    const SharedDevice shared;
    for (size_t i = next_++; i < runs_.size() && !interrupted(); i = next_++) run(i);
    const std::lock_guard<std::mutex> lock(mutex_);
    ++threads_done_;
    changed_.notify_all();
  }

  // Calls `tell` a few times a second until `threads` threads have ended.
  void watch(size_t threads, const std::function<void()>& tell) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (threads_done_ < threads) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      lock.unlock();
      tell();
      lock.lock();
    }
  }

  RunsTick tick(RunsTick now) const {
    std::vector<std::string> busy;
    now.runs_done += runs_done_;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const int64_t steps = steps_[i];
      now.steps_done += steps;
      if (steps > 0 && steps < runs_[i]->schedule.steps)
        busy.push_back(fmt::format("{} {}", runs_[i]->name, steps));
    }
    now.what = fmt::format("{}", fmt::join(busy, ", "));
    return now;
  }

  bool stopped() const { return stopped_; }
  bool starved(size_t i) const { return starved_[i] != 0; }

 private:
  void run(size_t i) {
    try {
      outcomes_[i].result = train(*runs_[i], [&](const TrainTick& t) { steps_[i] = t.step; });
    } catch (const InterruptedError&) {
      stopped_ = true;
    } catch (const c10::OutOfMemoryError&) {
      starved_[i] = 1;
      outcomes_[i].failure = "out of memory";
    } catch (const std::exception& error) {
      const std::string text = error.what();
      outcomes_[i].failure = text.substr(0, text.find('\n'));
    }
    steps_[i] = runs_[i]->schedule.steps;
    ++runs_done_;
  }

  const std::vector<const TrainOptions*>& runs_;
  std::vector<RunOutcome>& outcomes_;
  std::vector<std::atomic<int64_t>> steps_;
  std::vector<char> starved_;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> runs_done_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t threads_done_ = 0;
};

}  // namespace

// Many runs ask about few tasks.
bool packs(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, missing] = known.try_emplace(name, false);
  if (!missing) return found->second;
  const std::shared_ptr<Task> task = make_task(name);
  const Batch batch = task->batch(Split::train, {0});
  found->second = batch.cu_seqlens.defined() || (batch.lengths.defined() && !task->shape().causal);
  return found->second;
}

std::string refuses_thread(const TrainOptions& run) {
  if (!find_device(run.device).is_cuda()) return "it is on the CPU";
  if (at::detail::getCUDAHooks().deviceCount() > 1) return "there are several GPUs";
  if (run.model.dropout > 0) return "runs with dropout would share a generator";
  // One thread of autograd serves all runs of a process, so runs without graphs are slow together.
  return packs(run.task) ? "packed batches run without graphs" : "";
}

size_t runs_on_gpu(const std::vector<TrainOptions>& runs) {
  double most = 1;
  std::map<std::string, double> tokens;  // of an example, by task
  for (const TrainOptions& run : runs) {
    const auto [found, missing] = tokens.try_emplace(run.task, 0);
    if (missing) found->second = double(make_task(run.task)->shape().T);
    const double T = found->second;
    const double part = double(run.train.batch) / double(run.train.accumulation);
    most = std::max(most, part * T * double(run.model.D * run.model.layers) * kBytesOfNumber);
  }
  const auto fit = size_t(std::clamp(kMostBytes / most, 1.0, double(kMostRuns)));
  return std::clamp<size_t>(std::min(fit, cores()), 1, std::max<size_t>(1, runs.size()));
}

std::vector<RunOutcome> run_threads(
    const std::vector<const TrainOptions*>& runs,
    size_t at_once,
    const RunsTell& tell,
    const RunsTick& tick
) {
  std::vector<RunOutcome> outcomes(runs.size());
  Shared shared(runs, outcomes);
  const size_t count = std::min(at_once, runs.size());
  const int before = at::get_num_threads();
  const int share = std::max(1, int(cores() / std::max<size_t>(1, count)));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      at::set_num_threads(share);
      shared.work();
    });
  }
  shared.watch(count, [&] {
    if (tell) tell(shared.tick(tick));
  });
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(before);
  if (shared.stopped() || interrupted())
    throw InterruptedError("stopped; the same command goes on from the checkpoints of its runs");
  for (size_t i = 0; i < runs.size(); ++i) {  // alone there may be memory enough
    if (!shared.starved(i)) continue;
    try {
      outcomes[i] = {train(*runs[i]), ""};
    } catch (const InterruptedError&) {
      throw;
    } catch (const std::exception& error) {
      outcomes[i].failure = error.what();
    }
  }
  return outcomes;
}

}  // namespace horner
