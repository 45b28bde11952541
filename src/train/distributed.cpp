#include "train/distributed.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kBucketBytes = 25 << 20;
constexpr std::chrono::minutes kTimeout(10);

std::string text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

int64_t number(const char* name, int64_t otherwise) {
  const std::string value = text(name, "");
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  HORNER_CHECK(*end == '\0' && parsed >= 0, "{} must be a whole number, got '{}'", name, value);
  return parsed;
}

// torchrun's agent keeps the store; without torchrun the first process does.
c10::intrusive_ptr<c10d::Store> open_store(int64_t rank) {
  c10d::TCPStoreOptions options;
  options.port = uint16_t(number("MASTER_PORT", 29500));
  options.isServer = rank == 0 && text("TORCHELASTIC_USE_AGENT_STORE", "") != "True";
  options.waitWorkers = false;
  options.timeout = kTimeout;
  auto store = c10::make_intrusive<c10d::TCPStore>(text("MASTER_ADDR", "127.0.0.1"), options);
  return c10::make_intrusive<c10d::PrefixStore>(
      "horner/" + text("TORCHELASTIC_RESTART_COUNT", "0"), std::move(store)
  );
}

struct Arrival : torch::autograd::PostAccumulateGradHook {
  Arrival(Processes* p, size_t b) : processes(p), bucket(b) {}
  void operator()(const torch::autograd::Variable&) override { processes->arrived(bucket); }
  Processes* processes;
  size_t bucket;
};

[[noreturn]] void lost(int64_t rank, const std::exception& error) {
  const std::string what = error.what();
  throw RunError(
      "process {}: another process of the run is gone ({}); start it again, it goes on from the "
      "last checkpoint",
      rank,
      what.substr(0, what.find('\n'))
  );
}

}  // namespace

MakeNccl& make_nccl() {
  static MakeNccl make = nullptr;
  return make;
}

bool first_process() { return number("RANK", 0) == 0; }

std::string local_device(const std::string& device) {
  return device == "cuda" && number("WORLD_SIZE", 1) > 1
             ? fmt::format("cuda:{}", number("LOCAL_RANK", 0))
             : device;
}

std::shared_ptr<Processes> Processes::join(at::Device device) {
  const int64_t world = number("WORLD_SIZE", 1), rank = number("RANK", 0);
  // A single process under torchrun uses the same code as many.
  if (world <= 1 && text("TORCHELASTIC_RUN_ID", "").empty()) return nullptr;
  HORNER_CHECK(rank < world, "RANK must be below WORLD_SIZE = {}, got {}", world, rank);
  HORNER_CHECK(device.is_cpu() || make_nccl(), "this build of libhorner_cuda.so knows no NCCL");
  auto group = std::make_shared<Processes>();
  group->rank_ = rank;
  group->world_ = world;
  try {
    const auto store = open_store(rank);
    const auto prefixed = [&](const char* name) -> c10::intrusive_ptr<c10d::Store> {
      return c10::make_intrusive<c10d::PrefixStore>(name, store);
    };
    const auto gloo = [&](const char* name) {
      auto options = c10d::ProcessGroupGloo::Options::create_default(kTimeout);
      return c10::make_intrusive<c10d::ProcessGroupGloo>(
          prefixed(name), int(rank), int(world), options
      );
    };
    group->control_ = gloo("control");
    if (device.is_cpu()) {
      group->gradients_ = gloo("gradients");
    } else {
      group->gradients_ = make_nccl()(prefixed("gradients"), int(rank), int(world));
    }
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    throw RunError(
        "process {} of {} cannot join the others: {}", rank, world, what.substr(0, what.find('\n'))
    );
  }
  return group;
}

std::vector<double> Processes::sum(std::vector<double> numbers) {
  std::vector<at::Tensor> all = {at::tensor(numbers, at::kDouble)};
  try {
    control_->allreduce(all)->wait();
  } catch (const std::exception& error) {
    lost(rank_, error);
  }
  const double* first = all[0].const_data_ptr<double>();
  return {first, first + all[0].numel()};
}

void Processes::attach(Optimizer& optimizer) {
  for (Optimizer::Group& group : optimizer.groups()) {
    int64_t end = group.gradients.numel(), begin = end;
    std::vector<const Optimizer::Piece*> held;
    const auto cut = [&] {
      if (held.empty()) return;
      const auto count = int64_t(held.size());
      for (const Optimizer::Piece* piece : held)
        torch::autograd::impl::set_post_acc_grad_hooks(
            piece->weight, std::make_unique<Arrival>(this, buckets_.size())
        );
      buckets_.push_back({group.gradients.narrow(0, begin, end - begin), count, 0, {}});
      held.clear();
      end = begin;
    };
    for (auto piece = group.pieces.rbegin(); piece != group.pieces.rend(); ++piece) {
      held.push_back(&*piece);
      begin = piece->begin;
      if ((end - begin) * int64_t(sizeof(float)) >= kBucketBytes) cut();
    }
    cut();
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
  try {
    send_ready(false);
  } catch (const std::exception& error) {
    lost(rank_, error);
  }
}

void Processes::send_ready(bool all) {
  for (; sent_ < buckets_.size() && (all || buckets_[sent_].missing <= 0); ++sent_) {
    std::vector<at::Tensor> one = {buckets_[sent_].gradients};
    buckets_[sent_].work = gradients_->allreduce(one);
  }
}

void Processes::end() {
  try {
    send_ready(true);  // parameters without a gradient never arrive
    for (Bucket& bucket : buckets_) bucket.work->wait();
  } catch (const std::exception& error) {
    lost(rank_, error);
  }
  reducing_ = false;
}

}  // namespace horner
