#include "engine/slot_runner.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <map>

#include "core/check.h"
#include "core/device.h"
#include "engine/drawn_tokens.h"
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
    rows_->resize(size_t(o_.rows));
    limit_ = limit();
  }

  int64_t vocabulary() const override { return model_->options().vocabulary; }
  int64_t longest() const override {
    const int64_t positions = model_->options().positions;
    return positions > 0 && limit_ > 0 ? std::min(positions, limit_) : positions + limit_;
  }
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
  void for_memory(const StreamState& state, const Piece& piece) const override {
    const Stream& stream = stream_of(state);
    if (stream.row >= 0) return piece(&state, bytes(state));
    for (const State& layer : stream.own.layers) {
      for (const at::Tensor& part : layer.parts)
        piece(part.storage().data(), int64_t(part.storage().nbytes()));
    }
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
    const std::vector<std::optional<Draw>> none(states.size());
    return step_drawn(states, tokens, none, {});
  }

  bool can_draw() const override { return true; }
  at::Tensor step_drawn(
      std::span<StreamState* const> states,
      std::span<const int32_t> tokens,
      std::span<const std::optional<Draw>> draws,
      std::span<int32_t> next
  ) override {
    const OwnStream work(device_);
    const c10::NoGradGuard no_graph;
    const int64_t wanted = std::count(draws.begin(), draws.end(), std::nullopt);
    if (!host_.defined() || host_.size(0) < wanted)
      host_ = room({}, {wanted, vocabulary()}, at::kFloat);
    const at::Tensor host = host_.narrow(0, 0, wanted);
    std::vector<StreamState*> begun;
    std::vector<int32_t> given;
    Chosen drawn, whole;
    int64_t place = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      const int64_t to = draws[i] ? int64_t(i) : place++;
      if (stream_of(*states[i]).length == 0) {  // it has no state that could lie in slots
        at::Tensor logits;
        read(*states[i], tokens.subspan(i, 1), &logits);
        if (draws[i]) next[i] = drawn_token(logits, *draws[i]);
        if (!draws[i]) host.select(0, to).copy_(logits.squeeze(0));
        continue;
      }
      begun.push_back(states[i]), given.push_back(tokens[i]);
      Chosen& chosen = draws[i] ? drawn : whole;
      chosen.streams.push_back(&stream_of(*states[i])), chosen.places.push_back(to);
    }
    if (begun.empty()) return host;
    const Computed computed = run(begun, given);
    if (!drawn.streams.empty()) draw(computed, drawn, draws, next);
    if (!whole.streams.empty()) {
      const at::Tensor logits = computed.logits.index_select(0, rows_of(whole)).to(at::kFloat);
      if (int64_t(whole.places.size()) == wanted) {
        host.copy_(logits);
      } else {
        host.index_copy_(0, at::tensor(whole.places), logits.to(at::kCPU));
      }
    }
    return host;
  }

  void step_likeliest(
      std::span<StreamState* const> states, std::span<const int32_t> tokens, std::span<int32_t> next
  ) override {
    const std::vector<std::optional<Draw>> likeliest(states.size(), Draw{});
    step_drawn(states, tokens, likeliest, next);
  }

 private:
  struct Step {  // of a number of rows and a reach
    bool ran = false;
    std::unique_ptr<Replay> replay;
    at::Tensor logits, best;  // (rows,vocabulary), (rows)
  };
  struct Computed {
    at::Tensor logits, best;
  };

  struct Chosen {  // of the streams of a step
    std::vector<const Stream*> streams;
    std::vector<int64_t> places;  // of their results
  };

  at::Tensor rows_of(const Chosen& chosen) const {
    std::vector<int64_t> rows;
    for (const Stream* stream : chosen.streams) rows.push_back(stream->row);
    return at::tensor(rows).to(device_);
  }

  void draw(
      const Computed& computed,
      const Chosen& chosen,
      std::span<const std::optional<Draw>> draws,
      std::span<int32_t> next
  ) {
    at::Tensor tokens = computed.best;
    const bool likeliest = std::all_of(chosen.places.begin(), chosen.places.end(), [&](int64_t i) {
      return draws[size_t(i)]->temperature == 0;
    });
    if (!likeliest) {  // all rows, so that one is computed in the same way beside any others
      draws_ = room(draws_, {computed.logits.size(0), 2}, at::kDouble);
      double* const to = draws_.data_ptr<double>();
      std::fill_n(to, draws_.numel(), 0.);
      for (size_t j = 0; j < chosen.places.size(); ++j) {
        const int64_t row = chosen.streams[j]->row;
        const Draw& wanted = *draws[size_t(chosen.places[j])];
        to[2 * row] = wanted.temperature, to[2 * row + 1] = wanted.u;
      }
      tokens = drawn_tokens(computed.logits, draws_.to(device_, true));
    }
    tokens = tokens.index_select(0, rows_of(chosen)).to(at::kCPU);
    for (size_t j = 0; j < chosen.places.size(); ++j)
      next[size_t(chosen.places[j])] = int32_t(tokens.const_data_ptr<int64_t>()[j]);
  }

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
  }
  int64_t rows_for(int64_t n) const {
    return std::min(o_.rows, int64_t(std::bit_ceil(uint64_t(n))));
  }
  int64_t reach_for(int64_t tokens) const {
    const int64_t reach = std::max(kLeastReach, int64_t(std::bit_ceil(uint64_t(tokens))));
    return limit_ > 0 ? std::min(reach, limit_) : reach;
  }
  // Tokens for which the slots of all rows fit into the memory; 0: any number.
  int64_t limit() const {
    if (o_.memory == 0 || !slots_->grows()) return 0;
    const int64_t fixed = slots_->bytes(0), token = slots_->bytes(1) - fixed;
    const int64_t tokens = (o_.memory / o_.rows - fixed) / token / kLeastReach * kLeastReach;
    HORNER_CHECK(
        tokens > 0,
        "[engine] {} MiB have no room for {} streams of {} tokens: {} bytes each; take fewer "
        "streams",
        o_.memory >> 20,
        o_.rows,
        kLeastReach,
        slots_->bytes(kLeastReach)
    );
    return tokens;
  }

  Computed run(std::span<StreamState* const> states, std::span<const int32_t> tokens) {
    const c10::NoGradGuard no_graph;
    const auto n = int64_t(states.size());
    place(states);
    const int64_t b = o_.invariant ? o_.rows : rows_for(n);
    ids_ = room(ids_, {b}, at::kLong);
    std::fill_n(ids_.data_ptr<int64_t>(), b, 0);
    for (int64_t i = 0; i < n; ++i)
      ids_.data_ptr<int64_t>()[stream_of(*states[size_t(i)]).row] = tokens[size_t(i)];
    tokens_.narrow(0, 0, b).copy_(ids_, true);
    const Step& step = computed(b);
    for (StreamState* state : states) ++stream_of(*state).length;
    return {step.logits, step.best};
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
  std::optional<Slots> slots_;
  at::Tensor tokens_;              // (rows): what a step reads
  at::Tensor ids_, draws_, host_;  // on the CPU: tokens and draws of rows, logits
  int64_t reach_ = 0, limit_ = 0;
  std::map<std::pair<int64_t, int64_t>, Step> steps_;
  std::string not_recorded_;
};

}  // namespace

std::unique_ptr<Runner> slot_runner(std::shared_ptr<Model> model, const SlotOptions& options) {
  check_language_model(*model);
  return std::make_unique<SlotRunner>(std::move(model), options);
}

}  // namespace horner
