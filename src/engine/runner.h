// A Runner computes: it reads tokens into the states of streams and returns logits.
//
//   read   tokens of one stream, for prompts
//   step   one token of each of several streams; logits (n,vocabulary)
//   fork   a second stream with the same past
//
// The generic Runner is Model::forward on rows of a ModelState. Another Runner may keep states of its own kind: the engine holds
// a StreamState only by pointer, and knows nothing about its content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"

namespace horner {

// What a Runner keeps of one stream. A Runner is given only states that it made itself.
class StreamState {
 public:
  StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;
  virtual ~StreamState() = default;
};

// A token drawn from all, as TokenSampler does (model/sampling.h): by e^{(x - max x) / temperature} and u in [0, 1).
// Temperature 0: the likeliest. The token is -1 if no logit is a number above -inf.
struct Draw {
  double temperature = 0, u = 0;
};

class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  virtual int64_t vocabulary() const = 0;
  virtual int64_t longest() const { return 0; }  // most tokens of a stream; 0: any number
  virtual std::string name() const = 0;          // what computes, for summaries: "fp32, CPU"

  virtual int64_t weight_bytes() const = 0;  // of the weights that a step reads

  virtual std::unique_ptr<StreamState> open() = 0;  // nothing is read yet
  // Both go on from here; what one reads never changes the other.
  virtual std::unique_ptr<StreamState> fork(const StreamState& state) = 0;
  virtual int64_t bytes(const StreamState& state
  ) const = 0;  // that its tokens fill, without free room
  // The most that a state takes after so many tokens.
  virtual int64_t bytes_after(int64_t tokens) const = 0;
  // Each piece of memory that a state holds, with its free room. States that share a piece name the same address. While no
  // token is read into the state, its pieces stay the same.
  using Piece = std::function<void(const void* address, int64_t bytes)>;
  virtual void for_memory(const StreamState& state, const Piece& piece) const {
    piece(&state, bytes(state));
  }
  // Memory of several states together; what they share counts once.
  int64_t held_bytes(std::span<const StreamState* const> states) const;

  // A state as named tensors, and a state from them: what a file holds. Their names and shapes are the Runner's own; DataError if
  // they are not such tensors, UsageError if this Runner writes none.
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
  virtual Tensors tensors(const StreamState& state) const;
  virtual std::unique_ptr<StreamState> restore(const Tensors& tensors);

  // Reads at least one token. `logits`, unless null, becomes (tokens,vocabulary) in fp32 on the CPU.
  virtual void read(
      StreamState& state, std::span<const int32_t> tokens, at::Tensor* logits = nullptr
  ) = 0;
  // Reads tokens[i] into states[i], which are different states. Returns logits (n,vocabulary) in fp32 on the CPU; they are
  // valid until the next call.
  virtual at::Tensor step(
      std::span<StreamState* const> states, std::span<const int32_t> tokens
  ) = 0;
  // The same, if only the likeliest token of each is wanted, of equals the lowest; `next` has room for n.
  virtual void step_likeliest(
      std::span<StreamState* const> states, std::span<const int32_t> tokens, std::span<int32_t> next
  );
  // The same, where draws[i] says how a token is drawn: it is put into next[i], and no logits leave the device. Returns the
  // logits of the other streams, in their order. A stream's token does not depend on the draws of others.
  virtual bool can_draw() const { return false; }
  virtual at::Tensor step_drawn(
      std::span<StreamState* const> states,
      std::span<const int32_t> tokens,
      std::span<const std::optional<Draw>> draws,
      std::span<int32_t> next
  );
};

// UsageError if it is no causal language model.
void check_language_model(const Model& model);
int64_t weight_bytes(const Model& model
);  // of an embedding that is no head, a step reads a few rows

// Model::forward, on the device where the model lies. The states of streams that step together are rows of one ModelState, so
// nothing is copied while the same streams step. UsageError if it is no causal language model.
// `alone`: each stream steps by itself. Products of several rows sum in another order than those of one, so only then a stream
// has the same bits whatever steps beside it. `note` ends its name, as "why nothing faster runs".
std::unique_ptr<Runner> model_runner(
    std::shared_ptr<Model> model, bool alone = false, const std::string& note = ""
);

}  // namespace horner
