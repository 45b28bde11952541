#include "engine/slot_runner.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <bit>
#include <map>

#include "core/check.h"
#include "core/device.h"
#include "engine/slots.h"
#include "nn/linears.h"
#include "train/autocast.h"
#include "train/replay.h"

namespace horner {
namespace {

constexpr int64_t kLeastReach = 256;  // tokens

struct Stream;
using Rows = std::vector<Stream*>;  // who has which row; null: nobody

struct Stream : StreamState {
  explicit Stream(std::shared_ptr<Rows> all) : rows(std::move(all)) {}
  ~Stream() override { leave(); }
  void leave() {
    if (row >= 0) (*rows)[size_t(row)] = nullptr;
    row = -1;
  }

  const std::shared_ptr<Rows> rows;
  int64_t length = 0;  // tokens that were read
  int64_t row = -1;    // its state is there; -1: in `own`
  ModelState own;
};
Stream& stream_of(StreamState& state) { return static_cast<Stream&>(state); }
const Stream& stream_of(const StreamState& state) { return static_cast<const Stream&>(state); }

// Matrices of products become bf16, in place: what is small or summed stays fp32. Those of one input lie together.
void narrow_matrices(Model& model) {
  std::map<std::string, at::Tensor> all;
  for (auto& parameter : model.named_parameters()) all[parameter.key()] = parameter.value();
  for (const char* last : {"q", "k", "v", "out", "mlp_up", "mlp_gate", "mlp_down", "head"}) {
    const std::string own = std::string(last) + "_weight";
    for (auto& [name, x] : all) {
      if ((name == own || name.ends_with("." + own)) && x.dim() == 2)
        x.set_data(x.to(at::kBFloat16));
    }
  }
  if (all.contains("embedding")) all["embedding"].set_data(all["embedding"].to(at::kBFloat16));
  const auto together = [&](const std::string& prefix, std::initializer_list<const char*> names) {
    std::vector<at::Tensor> weights;
    for (const char* name : names) {
      const auto found = all.find(prefix + name + "_weight");
      if (found == all.end() || found->second.size(1) != model.options().D) return;
      weights.push_back(found->second);
    }
    lay_together(weights);
  };
  for (int64_t l = 0; l < model.options().layers; ++l) {
    together(fmt::format("layer_{}.mixer.", l), {"q", "k", "v"});
    together(fmt::format("layer_{}.", l), {"mlp_gate", "mlp_up"});
  }
}

class SlotRunner : public Runner {
 public:
  SlotRunner(std::shared_ptr<Model> model, const SlotOptions& o)
      : model_(std::move(model)), device_(model_->parameters().front().device()), o_(o) {
    if (o_.bf16) narrow_matrices(*model_);
    const OwnStream work(device_);
    slots_.emplace(
        [this](const at::Tensor& tokens, ModelState& state) { return hidden(tokens, state); },
        device_
    );
    tokens_ = at::zeros({o_.rows}, at::device(device_).dtype(at::kLong));
    rows_->resize(size_t(o_.rows)), used_.resize(size_t(o_.rows));
  }

  int64_t vocabulary() const override { return model_->options().vocabulary; }
  int64_t longest() const override { return model_->options().positions; }
  std::string name() const override {
    const std::string name =
        fmt::format("{}, {}", o_.bf16 ? "bf16" : "fp32", describe_device(device_));
    if (replay_kernels().record == nullptr || device_.is_cpu()) return name;
    return not_recorded_.empty() ? name + ", CUDA graphs"
                                 : fmt::format("{}; not recorded: {}", name, not_recorded_);
  }

  int64_t weight_bytes() const override { return horner::weight_bytes(*model_); }

  std::unique_ptr<StreamState> open() override { return std::make_unique<Stream>(rows_); }

  std::unique_ptr<StreamState> fork(const StreamState& state) override {
    const OwnStream work(device_);
    const c10::NoGradGuard no_graph;
    const Stream& from = stream_of(state);
    auto copy = std::make_unique<Stream>(rows_);
    copy->own = taken(from);
    copy->length = from.length;
    return copy;
  }

  int64_t bytes(const StreamState& state) const override {
    const int64_t length = stream_of(state).length;
    return length > 0 ? slots_->bytes(length) : 0;
  }
  int64_t bytes_after(int64_t tokens) const override { return slots_->bytes(tokens); }

  // States that are not in slots share what they have in common.
  int64_t held_bytes(std::span<const StreamState* const> states) const override {
    std::map<const void*, int64_t> storages;
    int64_t total = 0;
    for (const StreamState* state : states) {
      if (stream_of(*state).row >= 0) total += bytes(*state);
      for (const State& layer : stream_of(*state).own.layers) {
        for (const at::Tensor& part : layer.parts)
          storages[part.storage().data()] = int64_t(part.storage().nbytes());
      }
    }
    for (const auto& [memory, bytes] : storages) total += bytes;
    return total;
  }

  Tensors tensors(const StreamState& state) const override {
    const OwnStream work(device_);
    const c10::NoGradGuard no_graph;
    const ModelState own = taken(stream_of(state));
    Tensors named = {{"length", at::tensor({stream_of(state).length}, at::kLong)}};
    for (size_t l = 0; l < own.layers.size(); ++l) {
      for (size_t i = 0; i < own.layers[l].parts.size(); ++i)
        named.emplace_back(fmt::format("{}.{}", l, i), own.layers[l].parts[i].to(at::kCPU));
    }
    if (own.seen.defined()) named.emplace_back("seen", own.seen.to(at::kCPU));
    return named;
  }

  std::unique_ptr<StreamState> restore(const Tensors& named) override {
    const OwnStream work(device_);
    const std::map<std::string, at::Tensor> all(named.begin(), named.end());
    const auto length = all.find("length");
    if (length == all.end() || length->second.numel() != 1)
      throw DataError("the state was not made by this model: it has no length");
    auto stream = std::make_unique<Stream>(rows_);
    stream->length = length->second.item<int64_t>();
    for (int64_t l = 0; stream->length > 0 && l < model_->options().layers; ++l) {
      State& layer = stream->own.layers.emplace_back();
      for (auto part = all.end();; layer.parts.push_back(part->second.to(device_, false, true))) {
        part = all.find(fmt::format("{}.{}", l, layer.parts.size()));
        if (part == all.end()) break;
      }
    }
    if (const auto seen = all.find("seen"); seen != all.end())
      stream->own.seen = seen->second.to(device_);
    return stream;
  }

  void read(StreamState& state, std::span<const int32_t> tokens, at::Tensor* logits) override {
    const OwnStream work(device_);
    const c10::NoGradGuard no_graph;
    Stream& stream = stream_of(state);
    ModelState own = taken(stream);
    const at::Tensor ids =
        at::tensor(at::ArrayRef<int32_t>(tokens.data(), tokens.size()), at::kLong);
    const at::Tensor x = hidden(ids.to(device_).unsqueeze(0), own);
    if (logits != nullptr) *logits = logits_of(x.squeeze(0)).to(at::kCPU, at::kFloat).contiguous();
    stream.leave();
    stream.own = std::move(own);
    stream.length += int64_t(tokens.size());
  }

  at::Tensor step(std::span<StreamState* const> states, std::span<const int32_t> tokens) override {
    const OwnStream work(device_);
    const auto n = int64_t(states.size());
    host_ = room(host_, {n, vocabulary()}, at::kFloat);
    std::vector<StreamState*> begun;
    std::vector<int32_t> next;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i) {
      if (stream_of(*states[size_t(i)]).length == 0) {  // it has no state that could lie in slots
        at::Tensor logits;
        read(*states[size_t(i)], tokens.subspan(size_t(i), 1), &logits);
        host_.select(0, i).copy_(logits.squeeze(0));
      } else {
        begun.push_back(states[size_t(i)]);
        next.push_back(tokens[size_t(i)]), places.push_back(i);
      }
    }
    if (begun.empty()) return host_;
    const Computed computed = run(begun, next);
    const at::Tensor logits = computed.logits.index_select(0, computed.rows).to(at::kFloat);
    if (int64_t(begun.size()) == n) return host_.copy_(logits);
    return host_.index_copy_(0, at::tensor(places), logits.to(at::kCPU));
  }

  bool finds_likeliest() const override { return true; }
  void step_likeliest(
      std::span<StreamState* const> states, std::span<const int32_t> tokens, std::span<int32_t> next
  ) override {
    const OwnStream work(device_);
    at::Tensor best;  // (n)
    if (std::any_of(states.begin(), states.end(), [](StreamState* state) {
          return stream_of(*state).length == 0;
        })) {
      best = step(states, tokens).argmax(-1);
    } else {
      const Computed computed = run(states, tokens);
      best = computed.best.index_select(0, computed.rows).to(at::kCPU);
    }
    std::copy_n(best.const_data_ptr<int64_t>(), next.size(), next.begin());
  }

 private:
  struct Step {  // of a number of rows and a reach
    bool ran = false;
    std::unique_ptr<Replay> replay;
    at::Tensor logits, best;  // (rows,vocabulary), (rows)
  };
  struct Computed {
    at::Tensor logits, best, rows;  // rows (n): of the streams
  };

  at::Tensor hidden(const at::Tensor& tokens, ModelState& state) const {
    const c10::NoGradGuard no_graph;
    const Autocast precision(device_, o_.bf16, false);
    return model_->hidden(tokens, state);
  }
  at::Tensor logits_of(const at::Tensor& hidden) const {
    const Autocast precision(device_, o_.bf16, false);
    return model_->logits(hidden);
  }
  ModelState taken(const Stream& stream) const {
    return stream.row >= 0 ? slots_->take(stream.row, stream.length) : stream.own;
  }
  // A tensor of the CPU that a GPU writes fast; `old` if it has the size.
  at::Tensor room(const at::Tensor& old, at::IntArrayRef sizes, at::ScalarType type) const {
    if (old.defined() && old.sizes() == sizes) return old;
    return at::empty(sizes, at::dtype(type).pinned_memory(device_.is_cuda()));
  }

  // The streams get the first rows. Others that have a row, and do not step now, take their state out.
  void place(std::span<StreamState* const> states) {
    const auto n = int64_t(states.size());
    HORNER_CHECK(n <= o_.rows, "[engine] a step has at most {} streams, got {}", o_.rows, n);
    int64_t longest = 0;
    std::vector<bool> steps(rows_->size());
    for (StreamState* state : states) {
      const Stream& stream = stream_of(*state);
      longest = std::max(longest, stream.length + 1);
      if (stream.row >= 0) steps[size_t(stream.row)] = true;
    }
    for (Stream* other : *rows_) {
      if (other == nullptr || steps[size_t(other->row)]) continue;
      other->own = taken(*other);
      other->leave();
    }
    const int64_t wanted = o_.invariant ? o_.rows : rows_for(n);
    if (slots_->reserve(wanted, reach_for(longest))) steps_.clear();
    int64_t free = 0;
    for (StreamState* state : states) {
      Stream& stream = stream_of(*state);
      if (stream.row >= 0 && stream.row < n) continue;
      while ((*rows_)[size_t(free)] != nullptr) ++free;
      if (stream.row >= 0) {
        slots_->move(stream.row, free);
        stream.leave();
      } else {
        slots_->put(free, stream.own, stream.length);
        stream.own = {};
      }
      stream.row = free;
      (*rows_)[size_t(free)] = &stream;
    }
    reach_ = slots_->grows() ? reach_for(longest) : 0;
    clear_rows_without_stream(wanted);
  }
  // They are computed too, and would go on to read all the keys of the stream that left.
  void clear_rows_without_stream(int64_t rows) {
    for (size_t row = 0; row < size_t(rows); ++row) {
      const bool taken = (*rows_)[row] != nullptr;
      if (used_[row] && !taken) slots_->clear(int64_t(row));
      used_[row] = taken;
    }
  }
  int64_t rows_for(int64_t n) const {
    return std::min(o_.rows, int64_t(std::bit_ceil(uint64_t(n))));
  }
  static int64_t reach_for(int64_t tokens) {
    return std::max(kLeastReach, int64_t(std::bit_ceil(uint64_t(tokens))));
  }

  Computed run(std::span<StreamState* const> states, std::span<const int32_t> tokens) {
    const c10::NoGradGuard no_graph;
    const auto n = int64_t(states.size());
    place(states);
    const int64_t b = o_.invariant ? o_.rows : rows_for(n);
    ids_ = room(ids_, {b}, at::kLong), order_ = room(order_, {n}, at::kLong);
    std::fill_n(ids_.data_ptr<int64_t>(), b, 0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = stream_of(*states[size_t(i)]).row;
      ids_.data_ptr<int64_t>()[row] = tokens[size_t(i)];
      order_.data_ptr<int64_t>()[i] = row;
    }
    tokens_.narrow(0, 0, b).copy_(ids_, true);
    const Step& step = computed(b);
    for (StreamState* state : states) ++stream_of(*state).length;
    return {step.logits, step.best, order_.to(device_, true)};
  }

  void compute(int64_t rows, Step& step) const {
    const ModelState view = slots_->view(rows, reach_);
    ModelState after = view;
    const at::Tensor x = hidden(tokens_.narrow(0, 0, rows).unsqueeze(1), after);
    step.logits = logits_of(x.squeeze(1));
    step.best = step.logits.argmax(-1);
    slots_->keep(view, after);
  }

  const Step& computed(int64_t rows) {
    Step& step = steps_[{rows, reach_}];
    const bool records = device_.is_cuda() && replay_kernels().record && not_recorded_.empty();
    if (step.ran && !step.replay && records) {
      const Replay* beside = nullptr;
      for (const auto& [key, other] : steps_) beside = other.replay ? other.replay.get() : beside;
      step.replay = replay_kernels().record([&] { compute(rows, step); }, not_recorded_, beside);
    }
    if (step.replay) {
      step.replay->run();
    } else {
      compute(rows, step);
    }
    step.ran = true;
    return step;
  }

  std::shared_ptr<Model> model_;
  const at::Device device_;
  const SlotOptions o_;
  std::shared_ptr<Rows> rows_ = std::make_shared<Rows>();
  std::vector<bool> used_;  // (rows): whether a stream was there in the last step
  std::optional<Slots> slots_;
  at::Tensor tokens_;              // (rows): what a step reads
  at::Tensor ids_, order_, host_;  // on the CPU: tokens of rows, rows of streams, logits
  int64_t reach_ = 0;
  std::map<std::pair<int64_t, int64_t>, Step> steps_;
  std::string not_recorded_;
};

}  // namespace

std::unique_ptr<Runner> slot_runner(std::shared_ptr<Model> model, const SlotOptions& options) {
  check_language_model(*model);
  return std::make_unique<SlotRunner>(std::move(model), options);
}

}  // namespace horner
