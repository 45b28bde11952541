// What the plain forms of `attention` share: the keys that a call sees, their positions, and the
// mask.
#pragma once

#include "ops/op.h"

namespace horner {

double attention_scale(const Inputs&, const Options&);

// Keys in this order: the sinks outside the window, the cache, the tokens of this call.
struct Visible {
  at::Tensor k, v;  // (B,G,1,N + S + T,.)
  at::Tensor from,
      to;           // positions: of queries (B,G,1,T,1), of keys (B,G,1,1,N+S+T); below 0: no key
  at::Tensor end;   // of the rows (B,1,1,1,1), if they are padded
  int64_t N, S, T;  // sinks, cache, tokens

  struct Span {
    int64_t first, end;  // without the sinks
  };
  // The keys that one of the queries t .. t + C can see, without the sinks.
  Span span(int64_t t, int64_t C, const Options&) const;
  at::Tensor cut(const at::Tensor& x, int64_t dim, Span) const;  // x of these keys and the sinks
  // Whether each of the queries t .. t + C sees each of these keys.   (B|1,G|1,1,C,n)
  at::Tensor mask(int64_t t, int64_t C, Span, const Options&) const;
};

// k and v in the dtype of the inputs. Without a state all rows share the same positions.
Visible visible_keys(const Inputs&, const State&, const Options&);

State attention_zero_state(const Inputs&, const c10::SymInt& tokens, const Options&);
State attention_next_state(const Inputs&, const State&, const Options&);
bool has_fixed_caches(const State&);
// The sinks after this call. If the state had all of them, they are the state's own tensors.
struct Sinks {
  at::Tensor k, v;  // (B,G,N,K), (B,G,N,V); undefined: none
};
Sinks attention_sinks(const Inputs&, const State&, const Options&);

// The definition, for one token also the step form.
Result attention_recurrent(const Inputs&, const State&, const Options&);
Result attention_parallel(const Inputs&, const State&, const Options&);
Result attention_chunked(const Inputs&, const State&, const Options&);

}  // namespace horner
