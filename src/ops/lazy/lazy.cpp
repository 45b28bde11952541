#include "ops/lazy/lazy.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "core/check.h"

namespace horner {
namespace {

const Reader* reader_of(
    const Op& op, const Inputs& token, const Lazy& lazy, const Options& options
) {
  const bool can =
      token.v.is_cuda() && op.reader != nullptr && op.reader->refuses(token, lazy, options).empty();
  return can ? op.reader : nullptr;
}

// Every input except q, because nobody reads old queries.
template <class F>
void for_kept(const Op& op, const Inputs& token, F&& f) {
  for (const Input& input : op.inputs)
    if (input.tensor != &Inputs::q && (token.*input.tensor).defined()) f(input.tensor);
}

void make_room(const Op& op, const Inputs& token, Lazy& lazy) {
  for_kept(op, token, [&](at::Tensor Inputs::*tensor) {
    const at::Tensor& x = token.*tensor;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[1] = lazy.fold;
    at::Tensor& room = lazy.ring.*tensor;
    if (room.defined() && room.sizes() == sizes && room.scalar_type() == x.scalar_type()) return;
    HORNER_CHECK(
        lazy.count == 0, "[{}] a token must have the shape and type of those before it", op.name
    );
    room = at::empty(sizes, x.options());
  });
}

Options plain(const Options& options, bool state) {
  Options o = options;
  o.form = forms::kAuto;
  o.log_norm = false;
  o.final_state = state;
  return o;
}

}  // namespace

bool has_reader(const Op& op, const Inputs& token, const Lazy& lazy, const Options& options) {
  return reader_of(op, token, lazy, options) != nullptr;
}

State fold(const Op& op, const Lazy& lazy, const Options& options) {
  if (lazy.count == 0) return lazy.folded;
  Inputs in = tokens(op, lazy.ring, 0, lazy.count);
  in.q = in.k;  // any q will do: only the state is wanted
  const Reader* reader = reader_of(op, tokens(op, in, 0, 1), lazy, options);
  return reader ? reader->fold(lazy, options)
                : run(op, in, lazy.folded, plain(options, true)).state;
}

at::Tensor lazy_step(const Op& op, const Inputs& token, Lazy& lazy, const Options& options) {
  const at::NoGradGuard decoding;
  HORNER_CHECK(
      options.causal && token.v.size(1) == 1 && !token.cu_seqlens.defined(),
      "[{}] a lazy step takes one token of a causal op, got T = {}",
      op.name,
      token.v.size(1)
  );
  HORNER_CHECK(lazy.fold >= 1, "[{}] fold must be at least 1, got {}", op.name, lazy.fold);
  check_inputs(op, token, lazy.folded, plain(options, false));
  make_room(op, token, lazy);
  const Reader* reader = reader_of(op, token, lazy, options);
  at::Tensor o;
  if (reader) {
    o = reader->read(token, lazy, options);
    ++lazy.count;
  } else {
    for_kept(op, token, [&](at::Tensor Inputs::*tensor) {
      (lazy.ring.*tensor).narrow(1, lazy.count, 1).copy_(token.*tensor);
    });
    ++lazy.count;
    Inputs in = tokens(op, lazy.ring, 0, lazy.count);
    if (token.q.defined()) in.q = token.q.expand({-1, lazy.count, -1, -1});
    o = run(op, in, lazy.folded, plain(options, false)).o.narrow(1, lazy.count - 1, 1);
  }
  if (lazy.count == lazy.fold) {
    lazy.folded = fold(op, lazy, options);
    lazy.count = 0;
  }
  return o;
}

}  // namespace horner
