// Decoding that writes the state late. New tokens wait in a ring. Each token reads the old state and the waiting tokens, and
// gets the same o as from run(). When `fold` tokens wait, they are added to the state. So the state is read at each token
// but written only at each 16th: about half the memory traffic of a step.
#pragma once

#include "ops/op.h"

namespace horner {

struct Lazy {         // a copy shares the ring, which is written in place
  State folded = {};  // the state without the waiting tokens; empty: nothing was folded yet
  Inputs ring = {};   // (B,fold,..): the waiting tokens, and free places; q is not kept
  int64_t count = 0;  // tokens in the ring
  int64_t fold = 16;
};

// One token: o (B,1,H,V).
at::Tensor lazy_step(const Op&, const Inputs& token, Lazy&, const Options&);

// The state after all tokens, with those of the ring.
State fold(const Op&, const Lazy&, const Options&);

// Kernels that do this on a GPU.
struct Reader {
  std::string (*refuses)(const Inputs& token, const Lazy&, const Options&);  // why not; empty: can
  at::Tensor (*read
  )(const Inputs& token, const Lazy&, const Options&);  // puts the token into the ring, returns o
  State (*fold)(const Lazy&, const Options&);
};
bool has_reader(const Op&, const Inputs& token, const Lazy&, const Options&);

}  // namespace horner
