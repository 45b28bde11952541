// Decoding that writes the state late. The tokens since the last fold wait in a ring; a token reads the state as it was then,
// and them: o is what run() gives for the last of them. Every `fold` tokens they join the state. So it is read at each
// token but written at each 16th, which is about half the memory traffic of a step; what comes out is the same.
#pragma once

#include "ops/op.h"

namespace horner {

struct Lazy {         // a copy shares the ring, which is written in place
  State folded = {};  // after the tokens that have joined it; empty: none has
  Inputs ring = {};   // (B,fold,..): the tokens since, and room for more; q is not kept
  int64_t count = 0;  // tokens in the ring
  int64_t fold = 16;
};

// One token: o (B,1,H,V).
at::Tensor lazy_step(const Op&, const Inputs& token, Lazy&, const Options&);

// The state after all tokens, those of the ring too.
State fold(const Op&, const Lazy&, const Options&);

// Kernels in its place.
struct Reader {
  std::string (*refuses)(const Inputs& token, const Lazy&, const Options&);  // empty: they can
  at::Tensor (*read
  )(const Inputs& token, const Lazy&, const Options&);  // puts it into the ring, returns o
  State (*fold)(const Lazy&, const Options&);
};
bool has_reader(const Op&, const Inputs& token, const Lazy&, const Options&);

}  // namespace horner
