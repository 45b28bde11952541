#include "train/distributed.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/check.h"
#include "core/interrupt.h"
#include "core/number.h"
#include "train/run_folder.h"
#include "train/server.h"

namespace horner {
namespace {

constexpr std::chrono::seconds kStart(40);  // of the process that keeps the store
constexpr std::chrono::hours kTimeout(24
);  // of a long test in the first process; Heartbeat finds lost ones
constexpr int64_t kMostProcesses = 65536;
constexpr std::chrono::seconds kAnswer(20);  // of the store to a heartbeat

std::string text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

int64_t number(const char* name, int64_t otherwise, int64_t least, int64_t most) {
  const std::string value = text(name, "");
  if (value.empty()) return otherwise;
  const std::optional<int64_t> parsed = whole_number(value);
  HORNER_CHECK(
      parsed && *parsed >= least && *parsed <= most,
      "{} must be a whole number in {} .. {}, got '{}'",
      name,
      least,
      most,
      value
  );
  return *parsed;
}
int64_t rank_here(const char* name = "RANK") { return number(name, 0, 0, kMostProcesses - 1); }

void await_server(const std::string& host, uint16_t port) {
  const auto end = std::chrono::steady_clock::now() + kStart;
  while (!server_listens(host, port)) {
    if (interrupted()) throw InterruptedError("stopped before process 0 came");
    if (std::chrono::steady_clock::now() > end)
      throw RunError(
          "process {}: nobody listens at {}:{} after {} seconds; process 0 or torchrun, which "
          "keeps "
          "the store of the run, has not come",
          rank_here(),
          host,
          port,
          kStart.count()
      );
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// torchrun's agent keeps the store; without torchrun the first process does.
c10::intrusive_ptr<c10d::Store> open_store(bool keeps, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = uint16_t(number("MASTER_PORT", 29500, 1, 65535));
  options.isServer = keeps && text("TORCHELASTIC_USE_AGENT_STORE", "") != "True";
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string host = text("MASTER_ADDR", "127.0.0.1");
  if (!options.isServer) await_server(host, options.port);
  auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
  return c10::make_intrusive<c10d::PrefixStore>(
      "horner/" + text("TORCHELASTIC_RESTART_COUNT", "0"), std::move(store)
  );
}

// Until all have read their data, which may take long; Heartbeat finds lost ones. Gloo's own wait hears no Ctrl-C.
void await_all(c10d::Store& store, int64_t rank, int64_t world) {
  const auto key = [](int64_t r) { return fmt::format("ready/{}", r); };
  store.set(key(rank), std::string("1"));
  for (int64_t r = 0; r < world; ++r) {
    while (!store.check({key(r)})) {
      if (interrupted())
        throw InterruptedError("process {}: stopped before process {} was ready", rank, r);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

struct Arrival : torch::autograd::PostAccumulateGradHook {
  Arrival(Processes* p, size_t b) : processes(p), bucket(b) {}
  void operator()(const torch::autograd::Variable&) override { processes->arrived(bucket); }
  Processes* processes;
  size_t bucket;
};

[[noreturn]] void cannot_join(int64_t rank, int64_t world, const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string what = torch ? torch->what_without_backtrace() : error.what();
  throw RunError(
      "process {} of {} cannot join the others: {}", rank, world, what.substr(0, what.find('\n'))
  );
}

}  // namespace

MakeNccl& make_nccl() {
  static MakeNccl make = nullptr;
  return make;
}

int64_t processes_here() { return number("WORLD_SIZE", 1, 1, kMostProcesses); }

bool first_process() { return rank_here() == 0; }

std::string local_device(const std::string& device) {
  return device == "cuda" && processes_here() > 1 ? fmt::format("cuda:{}", rank_here("LOCAL_RANK"))
                                                  : device;
}

std::shared_ptr<Processes> Processes::meet() {
  const int64_t world = processes_here(), rank = rank_here();
  // A single process under torchrun uses the same code as many.
  if (world <= 1 && text("TORCHELASTIC_RUN_ID", "").empty()) return nullptr;
  HORNER_CHECK(rank < world, "RANK must be below WORLD_SIZE = {}, got {}", world, rank);
  auto group = std::make_shared<Processes>();
  group->rank_ = rank;
  group->world_ = world;
  try {
    group->store_ = open_store(rank == 0, kStart);
    group->store_->setTimeout(kTimeout);
    group->heartbeat_ = std::make_unique<Heartbeat>(open_store(false, kAnswer), rank, world);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    cannot_join(rank, world, error);
  }
  return group;
}

void Processes::connect(at::Device device) {
  HORNER_CHECK(device.is_cpu() || make_nccl(), "this build of libhorner_cuda.so knows no NCCL");
  device_ = device;
  try {
    await_all(*store_, rank_, world_);
    control_ = make_gloo("control");
    gradients_ = make_group("gradients");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    cannot_join(rank_, world_, error);
  }
}

void Processes::lost(const std::exception& error) const {
  const std::string what = error.what();
  if (interrupted()) throw InterruptedError("process {}: stopped with the others", rank_);
  throw RunError(
      "process {}: another process of the run is gone ({}); start it again, it goes on from the "
      "last checkpoint",
      rank_,
      what.substr(0, what.find('\n'))
  );
}

void Processes::compare(const Json& settings) {
  double others = 0;
  std::string said;
  try {
    if (first()) store_->set("settings", to_line(settings));
    const Json theirs = Json::parse(store_->get_to_str("settings"));
    const std::string other =
        difference(theirs, settings, "in process 0", fmt::format("in process {}", rank_));
    if (!other.empty()) store_->set("difference", other);
    others = sum({other.empty() ? 0.0 : 1.0})[0];
    if (others > 0) said = store_->get_to_str("difference");
    wait();  // the first keeps the store until all have read it
  } catch (const c10::Error& error) {
    lost(error);
  }
  HORNER_CHECK(others == 0, "the processes of the run differ: {}", said);
}

c10::intrusive_ptr<c10d::Backend> Processes::make_gloo(const std::string& name) {
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>(name, store_),
      int(rank_),
      int(world_),
      c10d::ProcessGroupGloo::Options::create_default(kTimeout)
  );
}

c10::intrusive_ptr<c10d::Backend> Processes::make_group(const std::string& name) {
  if (device_.is_cpu()) return make_gloo(name);
  // NCCL's own watchdog ends a process by std::terminate; Heartbeat ends it by a line.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  const c10::intrusive_ptr<c10d::Store> own = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  return make_nccl()(own, int(rank_), int(world_));
}

void Processes::say(const std::string& key, const Json& value) { store_->set(key, to_line(value)); }

Json Processes::hear(const std::string& key) {
  try {
    return Json::parse(store_->get_to_str(key));
  } catch (const c10::Error& error) {
    lost(error);
  }
}

void Processes::leave() {
  wait();  // until all are done
  heartbeat_.reset();
  wait();  // until nobody listens
}

void in_every(Processes* processes, const std::function<void()>& work) {
  if (processes == nullptr) return work();
  std::exception_ptr problem;
  try {
    work();
  } catch (...) {
    problem = std::current_exception();
  }
  std::vector<double> failed(size_t(processes->world()), 0);  // by process
  if (problem) failed[size_t(processes->rank())] = 1;
  try {
    failed = processes->sum(failed);
  } catch (...) {
    if (!problem) throw;
  }
  if (problem) std::rethrow_exception(problem);
  const auto first = std::find_if(failed.begin(), failed.end(), [](double x) { return x > 0; });
  if (first == failed.end()) return;
  const auto rank = first - failed.begin();
  if (interrupted()) throw InterruptedError("stopped with process {}", rank);
  throw RunError("process {} has ended the run; its line says why", rank);
}

void in_first(Processes* processes, const std::function<void()>& work) {
  in_every(processes, [&] {
    if (processes == nullptr || processes->first()) work();
  });
}

std::vector<double> Processes::sum(std::vector<double> numbers) {
  std::vector<at::Tensor> all = {at::tensor(numbers, at::kDouble)};
  try {
    control_->allreduce(all)->wait();
  } catch (const std::exception& error) {
    lost(error);
  }
  const double* first = all[0].const_data_ptr<double>();
  return {first, first + all[0].numel()};
}

Processes::Work Processes::all_gather(at::Tensor whole, at::Tensor own) {
  return started([&] { return gradients_->_allgather_base(whole, own); });
}

Processes::Work Processes::reduce_scatter(at::Tensor whole, at::Tensor own) {
  return started([&] { return gradients_->_reduce_scatter_base(own, whole); });
}

void Processes::finish(const Work& work) {
  try {
    work->wait();
  } catch (const std::exception& error) {
    lost(error);
  }
}

Sharing Processes::share(Shard shard) {
  Sharing share{shard, rank_, world_, {}, {}};
  if (shard == Shard::none) return share;
  share.sum = [this](at::Tensor x) {
    std::vector<at::Tensor> one = {x};
    finish(started([&] { return gradients_->allreduce(one); }));
  };
  share.gather = [this](at::Tensor whole, at::Tensor own) { finish(all_gather(whole, own)); };
  return share;
}

void Processes::attach(Optimizer& optimizer) {
  scatters_ = optimizer.share().shard == Shard::optimizer;
  for (Optimizer::Group& group : optimizer.groups()) {
    for (auto s = group.stretches.rbegin(); s != group.stretches.rend(); ++s) {
      for (const size_t i : s->pieces)
        torch::autograd::impl::set_post_acc_grad_hooks(
            group.pieces[i].weight, std::make_unique<Arrival>(this, buckets_.size())
        );
      const at::Tensor whole = group.gradients.narrow(0, s->begin, s->end - s->begin);
      buckets_.push_back({whole, s->gradients, int64_t(s->pieces.size()), 0, {}});
    }
  }
}

void Processes::begin() {
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  sent_ = 0;
  reducing_ = true;
}

void Processes::arrived(size_t bucket) {
  if (!reducing_) return;
  buckets_[bucket].missing -= 1;
  send_ready(false);
}

void Processes::send_ready(bool all) {
  for (; sent_ < buckets_.size() && (all || buckets_[sent_].missing <= 0); ++sent_) {
    Bucket& bucket = buckets_[sent_];
    std::vector<at::Tensor> one = {bucket.gradients};
    bucket.work = scatters_ ? reduce_scatter(bucket.gradients, bucket.own)
                            : started([&] { return gradients_->allreduce(one); });
  }
}

void Processes::end() {
  send_ready(true);  // parameters without a gradient never arrive
  for (const Bucket& bucket : buckets_) finish(bucket.work);
  reducing_ = false;
}

}  // namespace horner
