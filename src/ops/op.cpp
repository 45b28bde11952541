#include "ops/op.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"
#include "core/options.h"
#include "ops/kernel.h"

namespace horner {
namespace {

std::string shape(const at::Tensor& x) { return c10::str("(", c10::Join(",", x.sym_sizes()), ")"); }

bool optional_name(std::string_view name) { return name.ends_with('?'); }
std::string_view bare_name(std::string_view name) {
  return optional_name(name) ? name.substr(0, name.size() - 1) : name;
}

void check_presence(const Op& op, const Inputs& in) {
  for (const std::string_view name : {"q", "k", "v", "g", "beta"}) {
    const auto it = std::find_if(op.inputs.begin(), op.inputs.end(), [&](std::string_view other) {
      return bare_name(other) == name;
    });
    const bool given = input(in, name).defined();
    HORNER_CHECK(it != op.inputs.end() || !given, "[{}] takes no {}", op.name, name);
    HORNER_CHECK(
        it == op.inputs.end() || given || optional_name(*it), "[{}] {} is missing", op.name, name
    );
  }
}

// The tensor must be one of the given shapes, written with the letters of docs/notation.md.
struct Shape {
  std::string_view letters;
  std::vector<c10::SymInt> sizes;
};

void check_shape(
    const Op& op, std::string_view name, const at::Tensor& x, const std::vector<Shape>& allowed
) {
  if (!x.defined()) return;
  std::string rule;
  for (const Shape& s : allowed) {
    const auto sizes = x.sym_sizes();
    if (std::equal(sizes.begin(), sizes.end(), s.sizes.begin(), s.sizes.end())) return;
    rule += c10::str(rule.empty() ? "" : " or ", s.letters, " = (", c10::Join(",", s.sizes), ")");
  }
  throw UsageError("[{}] {} must be {}, got {}", op.name, name, rule, shape(x));
}

void check_shapes(const Op& op, const Inputs& in) {
  const at::Tensor& first = in.q.defined() ? in.q : in.v;
  for (const at::Tensor* x : {&in.q, &in.k, &in.v}) {
    HORNER_CHECK(
        !x->defined() || x->dim() == 4,
        "[{}] {} must have 4 dimensions (B,T,{}), got {}",
        op.name,
        x == &in.q   ? "q"
        : x == &in.k ? "k"
                     : "v",
        x == &in.v   ? "G,V"
        : x == &in.k ? "G,K"
                     : "H,K",
        shape(*x)
    );
  }
  const c10::SymInt B = first.sym_size(0), T = first.sym_size(1), H = first.sym_size(2);
  const c10::SymInt G = in.v.sym_size(2), V = in.v.sym_size(3);
  HORNER_CHECK(T >= 1, "[{}] T must be at least 1, got 0", op.name);
  check_shape(op, "v", in.v, {{"(B,T,G,V)", {B, T, G, V}}});
  std::vector<Shape> decays = {{"(B,T,G)", {B, T, G}}};
  if (in.q.defined()) {
    const c10::SymInt K = in.q.sym_size(3);
    check_shape(op, "k", in.k, {{"(B,T,G,K)", {B, T, G, K}}});
    HORNER_CHECK(
        G >= 1 && H % G == 0,
        "[{}] the {} heads of q must be a multiple of the {} heads of k and v",
        op.name,
        c10::str(H),
        c10::str(G)
    );
    decays.push_back({"(B,T,G,K)", {B, T, G, K}});
  } else {
    decays.push_back({"(B,T,G,V)", {B, T, G, V}});
  }
  check_shape(op, "g", in.g, decays);
  check_shape(op, "beta", in.beta, {{"(B,T,G)", {B, T, G}}});
  if (in.cu_seqlens.defined()) {
    HORNER_CHECK(
        in.cu_seqlens.dim() == 1 && in.cu_seqlens.sym_size(0) >= 2 &&
            at::isIntegralType(in.cu_seqlens.scalar_type(), false),
        "[{}] cu_seqlens must be (n+1) whole numbers, got {} {}",
        op.name,
        c10::str(in.cu_seqlens.scalar_type()),
        shape(in.cu_seqlens)
    );
    HORNER_CHECK(B == 1, "[{}] a packed batch must have B = 1, got {}", op.name, c10::str(B));
  }
}

void check_types(const Op& op, const Inputs& in) {
  const at::ScalarType type = in.v.scalar_type();
  for (const std::string_view name : op.inputs) {
    const at::Tensor& x = input(in, bare_name(name));
    if (!x.defined()) continue;
    HORNER_CHECK(
        x.is_floating_point() || (op.complex && x.is_complex()),
        "[{}] {} must be floating point, got {}",
        op.name,
        bare_name(name),
        c10::str(x.scalar_type())
    );
    const bool gate = bare_name(name) == "g" || bare_name(name) == "beta";
    HORNER_CHECK(
        gate || x.scalar_type() == type,
        "[{}] {} must have the dtype of v, {}, got {}",
        op.name,
        bare_name(name),
        c10::str(type),
        c10::str(x.scalar_type())
    );
    HORNER_CHECK(
        x.device() == in.v.device(),
        "[{}] {} must be on the device of v, {}, got {}",
        op.name,
        bare_name(name),
        in.v.device().str(),
        x.device().str()
    );
  }
}

bool takes(const Op& op, std::string_view option) {
  return std::find(op.options.begin(), op.options.end(), option) != op.options.end();
}

void check_options(const Op& op, const Options& options) {
  thread_local std::map<std::string_view, Options> passed;  // the same options come again and again
  if (const auto it = passed.find(op.name); it != passed.end() && it->second == options) return;
  Options given = options, plain = op.defaults;
  const Fields fields = horner::fields(given), defaults = horner::fields(plain);
  for (size_t i = 0; i < fields.size(); ++i) {
    const Json value = get_json(fields[i]);
    HORNER_CHECK(
        takes(op, fields[i].name) || value == get_json(defaults[i]),
        "[{}] takes no {}; it takes {}",
        op.name,
        fields[i].name,
        fmt::join(op.options, ", ")
    );
    const auto& choices = fields[i].choices;
    HORNER_CHECK(
        choices.empty() ||
            std::find(choices.begin(), choices.end(), value.get<std::string>()) != choices.end(),
        "[{}] {} must be one of {}, got {}",
        op.name,
        fields[i].name,
        fmt::join(choices, ", "),
        value.dump()
    );
  }
  HORNER_CHECK(options.chunk >= 1, "[{}] chunk must be at least 1, got {}", op.name, options.chunk);
  HORNER_CHECK(
      !options.scale || std::isfinite(*options.scale),
      "[{}] scale must be finite, got {}",
      op.name,
      *options.scale
  );
  HORNER_CHECK(
      std::isfinite(options.eps) && options.eps >= 0,
      "[{}] eps must be finite and at least 0, got {}",
      op.name,
      options.eps
  );
  for (const double c : options.coefficients) {
    HORNER_CHECK(std::isfinite(c), "[{}] coefficients must be finite, got {}", op.name, c);
  }
  HORNER_CHECK(
      !options.log_norm || !takes(op, "norm") || options.norm == "sum",
      "[{}] log_norm needs norm = sum: without one there is no normaliser",
      op.name
  );
  passed[op.name] = options;
}

c10::SymInt batch_of(const Inputs& in) {
  return in.cu_seqlens.defined() ? in.cu_seqlens.sym_size(0) - 1 : in.v.sym_size(0);
}

void check_state(const Op& op, const Inputs& in, const State& state, const Options& options) {
  if (state.empty()) return;
  HORNER_CHECK(options.causal, "[{}] both directions take no initial state", op.name);
  const State zero = op.zero_state(in, 0, options);
  HORNER_CHECK(
      state.parts.size() == zero.parts.size(),
      "[{}] a state has {} parts, got {}",
      op.name,
      zero.parts.size(),
      state.parts.size()
  );
  for (size_t i = 0; i < zero.parts.size(); ++i) {
    const at::Tensor& part = state.parts[i];
    const at::Tensor& like = zero.parts[i];
    HORNER_CHECK(part.defined(), "[{}] part {} of the state is missing", op.name, i);
    std::vector<c10::SymInt> sizes = like.sym_sizes().vec();
    sizes[0] = batch_of(in);
    if (like.sym_size(-2) == 0 && part.dim() == like.dim())
      sizes[2] = part.sym_size(2);  // a cache may hold any number of tokens
    check_shape(op, fmt::format("part {} of the state", i), part, {{"(B,G,...)", sizes}});
    HORNER_CHECK(
        part.device() == like.device() && part.is_floating_point() == like.is_floating_point(),
        "[{}] part {} of the state must be {} on {}, got {} on {}",
        op.name,
        i,
        c10::str(like.scalar_type()),
        like.device().str(),
        c10::str(part.scalar_type()),
        part.device().str()
    );
  }
}

Form form_named(const Op& op, std::string_view form, const Inputs& in) {
  if (form == "step") {
    HORNER_CHECK(
        in.v.size(1) == 1 || in.cu_seqlens.defined(),
        "[{}] form = step takes one token, got T = {}",
        op.name,
        in.v.size(1)
    );
    return op.recurrent;
  }
  const Form f = form == "recurrent" ? op.recurrent : form == "parallel" ? op.parallel : op.chunked;
  HORNER_CHECK(f != nullptr, "[{}] has no {} form", op.name, form);
  return f;
}

// Rows of a packed state from states of one row each; a cache is padded to the longest.
State stacked(const std::vector<State>& states) {
  State all;
  for (size_t i = 0; i < states[0].parts.size(); ++i) {
    int64_t longest = 0;
    const int64_t dim = states[0].parts[i].dim();
    if (dim > 2)
      for (const State& s : states) longest = std::max(longest, s.parts[i].size(2));
    std::vector<at::Tensor> rows;
    for (const State& s : states) {
      const at::Tensor& x = s.parts[i];
      rows.push_back(dim == 4 ? at::constant_pad_nd(x, {0, 0, 0, longest - x.size(2)}) : x);
    }
    all.parts.push_back(at::cat(rows, 0));
  }
  return all;
}

std::vector<int64_t> sequence_starts(const Op& op, const Inputs& in) {
  const at::Tensor starts = in.cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* first = starts.data_ptr<int64_t>();
  const std::vector<int64_t> list(first, first + starts.numel());
  HORNER_CHECK(
      list.front() == 0 && list.back() == in.v.size(1) && std::is_sorted(list.begin(), list.end()),
      "[{}] cu_seqlens must rise from 0 to T = {}, got {} .. {}",
      op.name,
      in.v.size(1),
      list.front(),
      list.back()
  );
  return list;
}

Inputs tokens(const Op& op, const Inputs& in, int64_t start, int64_t length) {
  Inputs some;
  for (const std::string_view name : op.inputs) {
    const at::Tensor& x = input(in, bare_name(name));
    if (x.defined()) input(some, bare_name(name)) = x.narrow(1, start, length);
  }
  return some;
}

// Each sequence of a packed batch on its own: its state starts afresh, or from its row of the state.
template <class F>
Result run_packed(
    const Op& op, F&& form, const Inputs& in, const State& state, const Options& options
) {
  const std::vector<int64_t> starts = sequence_starts(op, in);
  std::vector<at::Tensor> o, norm;
  std::vector<State> states;
  for (size_t j = 0; j + 1 < starts.size(); ++j) {
    const int64_t length = starts[j + 1] - starts[j];
    State own;
    for (const at::Tensor& part : state.parts) own.parts.push_back(part.narrow(0, int64_t(j), 1));
    if (length == 0) {  // an empty sequence leaves its state as it is
      states.push_back(own.empty() ? op.zero_state(in, 0, options) : own);
      continue;
    }
    const Result result = form(tokens(op, in, starts[j], length), own, options);
    o.push_back(result.o);
    norm.push_back(result.norm);
    states.push_back(result.state);
  }
  Result all{at::cat(o, 1), {}, {}, {}};
  if (options.log_norm) all.norm = at::cat(norm, 1);
  if (options.final_state) all.state = stacked(states);
  return all;
}

}  // namespace

int64_t State::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& part : parts) total += int64_t(part.nbytes());
  return total;
}

at::Tensor& input(Inputs& in, std::string_view name) {
  if (name == "q") return in.q;
  if (name == "k") return in.k;
  if (name == "v") return in.v;
  return name == "g" ? in.g : in.beta;
}

const at::Tensor& input(const Inputs& in, std::string_view name) {
  return input(const_cast<Inputs&>(in), name);
}

void check_inputs(const Op& op, const Inputs& in, const State& state, const Options& options) {
  check_presence(op, in);
  check_shapes(op, in);
  check_types(op, in);
  check_options(op, options);
  op.check(in, state, options);
  check_state(op, in, state, options);
}

std::string_view chosen_form(
    const Op& op, const Inputs& in, const State& state, const Options& options
) {
  if (const Kernel* kernel = chosen_kernel(op, in, state, options)) return kernel->form;
  if (options.form != "auto") return options.form;
  if (in.cu_seqlens.defined()) {  // the longest sequence decides for all
    const std::vector<int64_t> starts = sequence_starts(op, in);
    size_t longest = 0;
    for (size_t j = 0; j + 1 < starts.size(); ++j) {
      if (starts[j + 1] - starts[j] > starts[longest + 1] - starts[longest]) longest = j;
    }
    const int64_t length = starts[longest + 1] - starts[longest];
    return chosen_form(op, tokens(op, in, starts[longest], length), state, options);
  }
  return in.v.size(1) == 1 && options.causal ? "step" : op.choose(in, state, options);
}

Result run(const Op& op, const Inputs& in, const State& state, const Options& options) {
  const c10::impl::ExcludeDispatchKeyGuard wide(c10::autocast_dispatch_keyset
  );  // fp32 inside, always
  check_inputs(op, in, state, options);
  const Kernel* kernel = chosen_kernel(op, in, state, options);
  const std::string_view name = kernel ? kernel->form : chosen_form(op, in, state, options);
  const Form plain = kernel ? nullptr : form_named(op, name, in);
  const auto form = [&](const Inputs& x, const State& s, const Options& o) {
    return kernel ? run_kernel(op, *kernel, x, s, o) : plain(x, s, o);
  };
  Result result =
      in.cu_seqlens.defined() ? run_packed(op, form, in, state, options) : form(in, state, options);
  result.form = name;
  return result;
}

Result merge(const Result& a, const Result& b) {
  const at::Tensor norm = at::logaddexp(a.norm, b.norm);
  const auto share = [&](const Result& x) {
    return x.o * (x.norm - norm).exp().unsqueeze(-1).to(x.o.scalar_type());
  };
  return {share(a) + share(b), {}, norm, a.form};
}

}  // namespace horner
