// One set of rules for every op, form and device. Sizes are symbolic, so that a traced graph is checked too.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"
#include "core/options.h"
#include "ops/op.h"

namespace horner {
namespace {

std::string shape(const at::Tensor& x) { return c10::str("(", c10::Join(",", x.sym_sizes()), ")"); }

void check_presence(const Op& op, const Inputs& in) {
  for (const Input& any : kEveryInput) {
    const auto taken = std::find_if(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
      return input.name == any.name;
    });
    const bool given = (in.*any.tensor).defined(), takes = taken != op.inputs.end();
    HORNER_CHECK(takes || !given, "[{}] takes no {}", op.name, any.name);
    HORNER_CHECK(!takes || given || taken->optional, "[{}] {} is missing", op.name, any.name);
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

void check_starts(const Op& op, const Inputs& in) {
  const at::Tensor& starts = in.cu_seqlens;
  HORNER_CHECK(
      starts.dim() == 1 && starts.sym_size(0) >= 2 &&
          at::isIntegralType(starts.scalar_type(), false),
      "[{}] cu_seqlens must be (n+1) whole numbers, got {} {}",
      op.name,
      c10::str(starts.scalar_type()),
      shape(starts)
  );
  const at::Device place = starts.device();
  HORNER_CHECK(
      place == in.v.device() || place.is_cpu(),
      "[{}] cu_seqlens must be on the CPU or on the device of v, {}, got {}",
      op.name,
      in.v.device().str(),
      place.str()
  );
  const c10::SymInt B = in.v.sym_size(0);
  HORNER_CHECK(B == 1, "[{}] a packed batch must have B = 1, got {}", op.name, c10::str(B));
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
  for (const auto& [name, size] :
       {std::pair{"B", B},
        {"T", T},
        {"H", H},
        {"G", G},
        {"K", in.q.defined() ? in.q.sym_size(3) : V},
        {"V", V}})
    HORNER_CHECK(size >= 1, "[{}] {} must be at least 1, got 0", op.name, name);
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
  check_shape(op, "i", in.i, {{"(B,T,G)", {B, T, G}}});
}

void check_types(const Op& op, const Inputs& in) {
  const at::ScalarType type = in.v.scalar_type();
  for (const auto& [name, tensor, optional, gate] : op.inputs) {
    const at::Tensor& x = in.*tensor;
    if (!x.defined()) continue;
    HORNER_CHECK(
        x.is_floating_point() || (op.complex && x.is_complex()),
        "[{}] {} must be floating point, got {}",
        op.name,
        name,
        c10::str(x.scalar_type())
    );
    HORNER_CHECK(
        gate || x.scalar_type() == type,
        "[{}] {} must have the dtype of v, {}, got {}",
        op.name,
        name,
        c10::str(type),
        c10::str(x.scalar_type())
    );
    HORNER_CHECK(
        x.device() == in.v.device(),
        "[{}] {} must be on the device of v, {}, got {}",
        op.name,
        name,
        in.v.device().str(),
        x.device().str()
    );
  }
}

bool takes(const Op& op, std::string_view option) {
  return std::find(op.options.begin(), op.options.end(), option) != op.options.end();
}

void check_options(const Op& op, const Options& options) {
  thread_local std::map<std::string_view, Options> passed;  // options repeat from call to call
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
      !options.clamp || !std::isnan(*options.clamp), "[{}] clamp must be a number, got nan", op.name
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
  Inputs shapes;  // only shapes: the check of a step must not read the state
  for (const Input& input : op.inputs) {
    const at::Tensor& x = in.*input.tensor;
    if (x.defined())
      shapes.*input.tensor = at::empty_symint(x.sym_sizes(), x.options().device(at::kMeta));
  }
  const State zero = op.zero_state(shapes, 0, options);
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
        part.device() == in.v.device() && part.is_floating_point() == like.is_floating_point(),
        "[{}] part {} of the state must be {} on {}, got {} on {}",
        op.name,
        i,
        c10::str(like.scalar_type()),
        in.v.device().str(),
        c10::str(part.scalar_type()),
        part.device().str()
    );
  }
}

}  // namespace

void check_inputs(const Op& op, const Inputs& in, const State& state, const Options& options) {
  check_presence(op, in);
  check_shapes(op, in);
  if (in.cu_seqlens.defined()) check_starts(op, in);
  check_types(op, in);
  check_options(op, options);
  if (op.check != nullptr) op.check(in, state, options);
  check_state(op, in, state, options);
}

}  // namespace horner
