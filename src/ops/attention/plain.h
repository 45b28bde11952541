// What the plain forms of `attention` share: the keys that a call sees, their positions, and the
// mask.
#pragma once

#include "ops/op.h"

namespace horner {

double attention_scale(const Inputs&, const Options&);

// Sinks a query reads beside its window come first, then the cache, then the tokens of this call.
struct Visible {
  at::Tensor k, v;  // (B,G,1,N + S + T,.)
  at::Tensor from,
      to;           // positions: of queries (B,G,1,T,1), of keys (B,G,1,1,N+S+T); below 0: no key
  at::Tensor end;   // of the rows (B,1,1,1,1), where they are padded
  int64_t N, S, T;  // sinks, cache, tokens

  struct Span {
    int64_t first, end;  // beside the sinks
  };
  // The keys that some of the queries t .. t + C can see; the sinks beside them.
  Span span(int64_t t, int64_t C, const Options&) const;
  at::Tensor cut(const at::Tensor& x, int64_t dim, Span) const;  // x of these keys and the sinks
  // Whether each of the queries t .. t + C sees each of these keys.   (B|1,G|1,1,C,n)
  at::Tensor mask(int64_t t, int64_t C, Span, const Options&) const;
};

// k and v as they are, in the dtype of the inputs; the positions of all rows are one where no state
// is given.
Visible visible_keys(const Inputs&, const State&, const Options&);

State attention_zero_state(const Inputs&, const c10::SymInt& tokens, const Options&);
State attention_next_state(const Inputs&, const State&, const Options&);
// The first tokens, after those of this call; the state's own tensors where they were complete.
struct Sinks {
  at::Tensor k, v;  // (B,G,N,K), (B,G,N,V); undefined: none
};
Sinks attention_sinks(const Inputs&, const State&, const Options&);

// The definition, and what the other forms fall back to.
Result attention_recurrent(const Inputs&, const State&, const Options&);
Result attention_parallel(const Inputs&, const State&, const Options&);
Result attention_chunked(const Inputs&, const State&, const Options&);

}  // namespace horner
