// Model::forward as a Runner: streams that step together are rows of one ModelState.
//
//   batch.state   row:     0        1        2             a key/value cache of rows with 5, 2 and 3 tokens:
//   cache slots           abcde    ...ab    ..abc          shorter rows begin after their empty slots
//
// A stream joins or leaves by making a new batch of the rows. While the same streams step, their batch goes on in place.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <map>
#include <unordered_set>

#include "core/check.h"
#include "core/device.h"
#include "engine/runner.h"

namespace horner {
namespace {

struct Batch {
  ModelState state;
  std::vector<int64_t> empty_slots;  // (rows): of its caches, before its first token
  std::vector<std::vector<bool>>
      grows;          // (layers, parts): whether a part is a cache with empty slots
  int64_t users = 0;  // streams; rows of streams that left are computed in vain

  int64_t rows() const { return int64_t(empty_slots.size()); }
};

struct Row : StreamState {
  std::shared_ptr<Batch> batch;  // null: nothing was read
  int64_t row = 0;

  Row() = default;
  Row(std::shared_ptr<Batch> of, int64_t at) { place(std::move(of), at); }
  ~Row() override { leave(); }
  void leave() {
    if (batch) --batch->users;
    batch.reset();
  }
  void place(std::shared_ptr<Batch> into, int64_t at) {
    leave();
    batch = std::move(into);
    row = at;
    ++batch->users;
  }
};

Row& row_of(StreamState& state) { return static_cast<Row&>(state); }
const Row& row_of(const StreamState& state) { return static_cast<const Row&>(state); }

std::shared_ptr<Batch> batch_of_one(ModelState state) {
  auto batch = std::make_shared<Batch>();
  batch->state = std::move(state);
  batch->empty_slots = {0};
  return batch;
}

// A row of a batch without its empty slots, as views of the batch's memory.
ModelState view_of(const Row& stream) {
  const Batch& batch = *stream.batch;
  if (batch.rows() == 1) return batch.state;
  const int64_t empty = batch.empty_slots[size_t(stream.row)];
  ModelState own;
  for (size_t l = 0; l < batch.state.layers.size(); ++l) {
    State layer = horner::row_of(batch.state.layers[l], stream.row);
    for (size_t i = 0; i < layer.parts.size(); ++i) {
      at::Tensor& part = layer.parts[i];
      if (batch.grows[l][i]) part = part.narrow(2, empty, part.size(2) - empty);
    }
    own.layers.push_back(std::move(layer));
  }
  if (batch.state.seen.defined()) own.seen = batch.state.seen.narrow(0, stream.row, 1);
  return own;
}

// The same as a state of its own. A batch of one row is shared: no op writes into a state, and a cache with room
// is copied when it is continued for the second time.
ModelState own_state(const Row& stream) {
  return stream.batch->rows() == 1 ? stream.batch->state : copy(view_of(stream));
}

// Slots of the caches that grow, if such rows fit into one batch: their parts differ in these alone.
std::optional<std::vector<std::vector<bool>>> growing_parts(const std::vector<ModelState>& rows) {
  std::vector<std::vector<bool>> grows;
  for (size_t l = 0; l < rows[0].layers.size(); ++l) {
    grows.emplace_back();
    for (size_t i = 0; i < rows[0].layers[l].parts.size(); ++i) {
      const at::Tensor& first = rows[0].layers[l].parts[i];
      bool differ = false;
      for (const ModelState& row : rows) {
        const at::Tensor& part = row.layers[l].parts.at(i);
        if (part.dim() != first.dim()) return {};
        for (int64_t d = 0; d < part.dim(); ++d) {
          if (part.size(d) == first.size(d)) continue;
          if (part.dim() != 4 || d != 2) return {};
          differ = true;
        }
      }
      grows.back().push_back(differ);
    }
  }
  return grows;
}

class ModelRunner : public Runner {
 public:
  ModelRunner(std::shared_ptr<Model> model, bool alone, const std::string& note)
      : model_(std::move(model)),
        device_(model_->parameters().front().device()),
        alone_(alone),
        note_(note) {}

  int64_t vocabulary() const override { return model_->options().vocabulary; }
  int64_t longest() const override { return model_->options().positions; }
  std::string name() const override {
    const at::Tensor weight = model_->parameters().front();
    const auto type = weight.scalar_type();
    const std::string name = fmt::format(
        "{}, {}",
        type == at::kFloat      ? "fp32"
        : type == at::kBFloat16 ? "bf16"
                                : c10::toString(type),
        describe_device(device_)
    );
    return note_.empty() ? name : fmt::format("{}; {}", name, note_);
  }

  int64_t weight_bytes() const override { return horner::weight_bytes(*model_); }

  std::unique_ptr<StreamState> open() override { return std::make_unique<Row>(); }

  std::unique_ptr<StreamState> fork(const StreamState& state) override {
    const Row& stream = row_of(state);
    if (!stream.batch) return open();
    return std::make_unique<Row>(batch_of_one(own_state(stream)), 0);
  }

  int64_t bytes(const StreamState& state) const override {
    const Row& stream = row_of(state);
    return stream.batch ? view_of(stream).bytes() : 0;
  }

  // b(T) = c + a T beyond a window, from two lengths.
  int64_t bytes_after(int64_t tokens) const override {
    static constexpr int64_t kLong = 2048;
    if (!sizes_) {
      const ModelOptions& o = model_->options();
      sizes_ = {state_bytes(o, kLong), state_bytes(o, 2 * kLong)};
    }
    const auto [once, twice] = *sizes_;
    const auto width = int64_t(model_->parameters().front().element_size());
    return (2 * once - twice + int64_t(double(twice - once) / kLong * double(tokens))) * width / 4;
  }

  void for_memory(const StreamState& state, const Piece& piece) const override {
    if (!row_of(state).batch) return;
    for (const State& layer : row_of(state).batch->state.layers) {
      for (const at::Tensor& part : layer.parts)
        piece(part.storage().data(), int64_t(part.storage().nbytes()));
    }
  }

  // layer.part of each layer, and `seen`.
  Tensors tensors(const StreamState& state) const override {
    Tensors named;
    if (!row_of(state).batch) return named;
    const ModelState own = view_of(row_of(state));
    for (size_t l = 0; l < own.layers.size(); ++l) {
      for (size_t i = 0; i < own.layers[l].parts.size(); ++i)
        named.emplace_back(fmt::format("{}.{}", l, i), own.layers[l].parts[i]);
    }
    if (own.seen.defined()) named.emplace_back("seen", own.seen);
    return named;
  }

  std::unique_ptr<StreamState> restore(const Tensors& named) override {
    if (named.empty()) return open();
    const std::map<std::string, at::Tensor> all(named.begin(), named.end());
    ModelState own;
    for (int64_t l = 0; l < model_->options().layers; ++l) {
      State& layer = own.layers.emplace_back();
      for (auto part = all.end();; layer.parts.push_back(part->second.to(device_, false, true))) {
        part = all.find(fmt::format("{}.{}", l, layer.parts.size()));
        if (part == all.end()) break;
      }
    }
    if (const auto seen = all.find("seen"); seen != all.end()) own.seen = seen->second.to(device_);
    return std::make_unique<Row>(batch_of_one(std::move(own)), 0);
  }

  void read(StreamState& state, std::span<const int32_t> tokens, at::Tensor* logits) override {
    const c10::NoGradGuard no_graph;
    Row& stream = row_of(state);
    ModelState own;
    if (stream.batch) own = own_state(stream);
    const at::Tensor hidden = model_->hidden(ids(tokens).unsqueeze(0), own);
    if (logits != nullptr) *logits = on_cpu(model_->logits(hidden.squeeze(0)));
    stream.place(batch_of_one(std::move(own)), 0);
  }

  at::Tensor step(std::span<StreamState* const> states, std::span<const int32_t> tokens) override {
    const c10::NoGradGuard no_graph;
    if (alone_ && states.size() > 1) return each_alone(states, tokens);
    const std::shared_ptr<Batch> batch = join(states);
    if (!batch) return each_alone(states, tokens);
    std::vector<int32_t> of_row(size_t(batch->rows()), tokens[0]);
    std::vector<int64_t> rows;
    for (size_t i = 0; i < states.size(); ++i) {
      rows.push_back(row_of(*states[i]).row);
      of_row[size_t(rows.back())] = tokens[i];
    }
    const at::Tensor hidden = model_->hidden(ids(of_row).unsqueeze(1), batch->state).squeeze(1);
    const at::Tensor wanted = at::tensor(rows, at::kLong).to(device_);
    return on_cpu(model_->logits(hidden.index_select(0, wanted)));
  }

 private:
  at::Tensor ids(std::span<const int32_t> tokens) const {
    return at::tensor(at::ArrayRef<int32_t>(tokens.data(), tokens.size()), at::kLong).to(device_);
  }
  static at::Tensor on_cpu(const at::Tensor& logits) {
    return logits.to(at::kCPU, at::kFloat).contiguous();
  }

  // One batch that has all of these streams as rows; null if their states do not fit together.
  std::shared_ptr<Batch> join(std::span<StreamState* const> states) {
    const std::shared_ptr<Batch> first = row_of(*states[0]).batch;
    bool together = first && int64_t(states.size()) * 2 > first->rows() &&
                    first->users == int64_t(states.size());
    for (StreamState* state : states) together = together && row_of(*state).batch == first;
    if (together) return first;
    std::vector<ModelState> rows;
    for (StreamState* state : states) {
      if (!row_of(*state).batch && states.size() > 1) return nullptr;  // has no parts yet
      rows.push_back(row_of(*state).batch ? view_of(row_of(*state)) : ModelState());
    }
    const std::shared_ptr<Batch> batch = stack(std::move(rows));
    if (!batch) return nullptr;
    for (size_t i = 0; i < states.size(); ++i) row_of(*states[i]).place(batch, int64_t(i));
    return batch;
  }

  static std::shared_ptr<Batch> stack(std::vector<ModelState> rows) {
    if (rows.size() == 1) return batch_of_one(std::move(rows[0]));
    auto grows = growing_parts(rows);
    if (!grows) return nullptr;
    auto batch = std::make_shared<Batch>();
    batch->empty_slots.assign(rows.size(), 0);
    for (size_t l = 0; l < rows[0].layers.size(); ++l) {
      std::vector<State> layer;
      for (const ModelState& row : rows) layer.push_back(row.layers[l]);
      batch->state.layers.push_back(stack_rows(layer));
      for (size_t i = 0; i < layer[0].parts.size(); ++i) {
        if (!(*grows)[l][i]) continue;
        const int64_t slots = batch->state.layers[l].parts[i].size(2);
        for (size_t r = 0; r < rows.size(); ++r)
          batch->empty_slots[r] = slots - layer[r].parts[i].size(2);
      }
    }
    if (rows[0].seen.defined()) {
      std::vector<at::Tensor> seen;
      for (const ModelState& row : rows) seen.push_back(row.seen);
      batch->state.seen = at::cat(seen);
    }
    batch->grows = std::move(*grows);
    return batch;
  }

  at::Tensor each_alone(std::span<StreamState* const> states, std::span<const int32_t> tokens) {
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < states.size(); ++i)
      all.push_back(step(states.subspan(i, 1), tokens.subspan(i, 1)));
    return at::cat(all);
  }

  std::shared_ptr<Model> model_;
  const at::Device device_;
  const bool alone_;
  const std::string note_;
  mutable std::optional<std::pair<int64_t, int64_t>> sizes_;
};

}  // namespace

int64_t Runner::held_bytes(std::span<const StreamState* const> states) const {
  std::unordered_set<const void*> counted;
  int64_t total = 0;
  for (const StreamState* state : states)
    for_memory(*state, [&](const void* address, int64_t bytes) {
      if (counted.insert(address).second) total += bytes;
    });
  return total;
}

Runner::Tensors Runner::tensors(const StreamState&) const {
  throw UsageError("states of {} cannot be written", name());
}
std::unique_ptr<StreamState> Runner::restore(const Tensors&) {
  throw UsageError("states of {} cannot be read", name());
}

void Runner::step_likeliest(
    std::span<StreamState* const> states, std::span<const int32_t> tokens, std::span<int32_t> next
) {
  const at::Tensor best = step(states, tokens).argmax(-1);
  std::copy_n(best.const_data_ptr<int64_t>(), next.size(), next.begin());
}

at::Tensor Runner::
    step_drawn(std::span<StreamState* const>, std::span<const int32_t>, std::span<const std::optional<Draw>>, std::span<int32_t>) {
  throw UsageError("{} draws no tokens", name());
}

int64_t weight_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const auto& parameter : model.named_parameters()) {
    const bool rows = parameter.key() == "embedding" && !model.options().tied;
    if (!rows) bytes += int64_t(parameter.value().nbytes());
  }
  return bytes;
}

void check_language_model(const Model& model) {
  const ModelOptions& o = model.options();
  HORNER_CHECK(model.causal(), "it is no language model: it reads in both directions");
  HORNER_CHECK(
      o.classes == 0 && o.output == "tokens" && o.features == 0,
      "it is no language model: {}",
      o.classes > 0          ? fmt::format("it sorts sequences into {} classes", o.classes)
      : o.output != "tokens" ? fmt::format("its output is {}", o.output)
                             : "it reads numbers, not tokens"
  );
}

std::unique_ptr<Runner> model_runner(
    std::shared_ptr<Model> model, bool alone, const std::string& note
) {
  check_language_model(*model);
  return std::make_unique<ModelRunner>(std::move(model), alone, note);
}

}  // namespace horner
