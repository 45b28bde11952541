// The states of streams that step together, in memory that never moves: so their step is recorded once and replayed.
//
//   part of a layer's state     in slots                        a row that has read n tokens
//   cache that grows            (rows,G,C,X), fixed (cache.h)   token p in slot p
//   cache of a window           (rows,G,w,X), fixed             token p in slot p mod w
//   anything else               (rows,..)                       as it is
//
// A state goes in and out by copies of its row.
#pragma once

#include <functional>

#include "model/model.h"

namespace horner {

class Slots {
 public:
  // Model::hidden, in the precision of the steps: tokens (B,T), the state after them.
  using Hidden = std::function<at::Tensor(const at::Tensor& tokens, ModelState& state)>;

  // Reads three tokens to learn the parts of the state.
  Slots(const Hidden& hidden, at::Device device);

  // Room for so many rows of so many tokens; true if anything moved.
  bool reserve(int64_t rows, int64_t tokens);
  int64_t rows() const { return rows_; }

  void put(int64_t row, const ModelState& state, int64_t length);
  ModelState take(int64_t row, int64_t length) const;
  void move(int64_t from, int64_t to);

  // What a step of the first rows reads, if none of them has more tokens then. The step's own state is written back by `keep`.
  ModelState view(int64_t rows, int64_t tokens) const;
  void keep(const ModelState& view, const ModelState& after) const;

  bool grows() const { return token_bytes_ > 0; }
  int64_t bytes(int64_t tokens) const { return constant_bytes_ + tokens * token_bytes_; }

 private:
  enum class Kind { constant, ring, growing };
  struct Part {
    Kind kind;
    at::Tensor like;   // (1,..): of one stream
    at::Tensor slots;  // (rows,..)
  };
  void make(Part& part, int64_t rows, int64_t tokens) const;

  std::vector<std::vector<Part>> layers_;
  at::Tensor seen_like_, seen_;  // (1), (rows): undefined without learned positions
  int64_t rows_ = 0, tokens_ = 0;
  int64_t constant_bytes_ = 0, token_bytes_ = 0;
};

}  // namespace horner
