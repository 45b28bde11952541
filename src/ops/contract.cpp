#include "ops/contract.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "core/check.h"

namespace horner {
namespace {

constexpr double kExact = 1e-10;  // fp64 forms against each other

Options with(const Case& c, std::string_view form, int64_t chunk = 16, bool state = true) {
  Options options = c.variant.options;
  options.form = std::string(form);
  options.chunk = chunk;
  options.final_state = state;
  return options;
}

double result_error(const Result& a, const Result& b) {
  double error = relative_error(a.o, b.o);
  if (b.norm.defined()) error = std::max(error, relative_error(a.norm, b.norm));
  for (size_t i = 0; i < b.state.parts.size(); ++i) {
    error = std::max(error, relative_error(a.state.parts[i], b.state.parts[i]));
  }
  return error;
}

template <class F>
Inputs map_inputs(const Case& c, const Inputs& in, F&& f) {
  Inputs out = in;
  for (const Input& input : c.op.inputs) {
    at::Tensor& x = out.*input.tensor;
    if (x.defined()) x = f(x);
  }
  return out;
}

template <class F>
void for_each_form(const Case& c, F&& f) {
  f(with(c, "recurrent"));
  if (c.op.parallel) f(with(c, "parallel"));
  for (const int64_t chunk : {int64_t(1), int64_t(7), int64_t(16), int64_t(64), c.dims.T}) {
    f(with(c, "chunked", chunk));
  }
}

Measure forms_agree(const Case& c) {
  Measure m{0, kExact};
  for (const int64_t T : {c.dims.T, int64_t(1)}) {
    Case some = c;
    some.dims.T = T;
    const Inputs in = sample_inputs(some, at::kDouble);
    const Result definition = run(c.op, in, {}, with(c, "recurrent"));
    for_each_form(some, [&](const Options& o) {
      m.error = std::max(m.error, result_error(run(c.op, in, {}, o), definition));
    });
  }
  return m;
}

Measure splits(const Case& c) {
  if (!c.variant.options.causal || c.dims.T < 2) return {.applies = false};
  Measure m{0, kExact};
  const Inputs in = sample_inputs(c, at::kDouble);
  const Result whole = run(c.op, in, {}, with(c, "recurrent"));
  for (const int64_t s : {int64_t(1), c.dims.T / 2, c.dims.T - 1}) {
    for_each_form(c, [&](const Options& o) {
      const Result first = run(c.op, tokens(c.op, in, 0, s), {}, o);
      Result second = run(c.op, tokens(c.op, in, s, c.dims.T - s), first.state, o);
      second.o = at::cat({first.o, second.o}, 1);
      if (second.norm.defined()) second.norm = at::cat({first.norm, second.norm}, 1);
      m.error = std::max(m.error, result_error(second, whole));
    });
  }
  return m;
}

Measure steps(const Case& c) {
  if (!c.variant.options.causal) return {.applies = false};
  const Inputs in = sample_inputs(c, at::kDouble);
  const Result whole = run(c.op, in, {}, with(c, "chunked"));
  Result all;
  std::vector<at::Tensor> o;
  for (int64_t t = 0; t < c.dims.T; ++t) {
    all = run(c.op, tokens(c.op, in, t, 1), all.state, with(c, "step"));
    o.push_back(all.o);
  }
  return {relative_error(at::cat(o, 1), whole.o), kExact};
}

Measure packs(const Case& c) {
  const int64_t T = c.dims.T, cut = T / 3;
  Case one = c;
  one.dims.B = 1;
  Inputs in = sample_inputs(one, at::kDouble);
  Measure m{0, kExact};
  for_each_form(c, [&](const Options& o) {
    Inputs packed = in;
    packed.cu_seqlens = at::tensor({int64_t(0), cut, cut, T}, at::kInt).to(c.device);
    const Result all = run(c.op, packed, {}, o);
    std::vector<at::Tensor> out;
    for (const auto& [start, end] : {std::pair{int64_t(0), cut}, std::pair{cut, T}}) {
      if (start < end) out.push_back(run(c.op, tokens(c.op, in, start, end - start), {}, o).o);
    }
    m.error = std::max(m.error, relative_error(all.o, at::cat(out, 1)));
    if (!c.variant.options.causal) return;
    const Result again = run(c.op, packed, all.state, o);  // each sequence goes on from its own row
    const Result first = run(c.op, tokens(c.op, in, 0, std::max<int64_t>(cut, 1)), {}, o);
    const Result second = run(c.op, tokens(c.op, in, 0, std::max<int64_t>(cut, 1)), first.state, o);
    if (cut > 0) m.error = std::max(m.error, relative_error(again.o.narrow(1, 0, cut), second.o));
  });
  return m;
}

// Counts forms whose output before t moves, by any bit, when every input from t on changes.
Measure causal(const Case& c) {
  if (!c.variant.options.causal || c.dims.T < 2) return {.applies = false};
  const Inputs in = sample_inputs(c, at::kDouble);
  const int64_t t = c.dims.T / 2;
  Case another = c;
  another.seed += 1;
  const Inputs other = sample_inputs(another, at::kDouble);
  Inputs changed;
  for (const Input& one : c.op.inputs) {
    if (!(in.*one.tensor).defined()) continue;
    changed.*one.tensor = at::cat(
        {(in.*one.tensor).narrow(1, 0, t), (other.*one.tensor).narrow(1, t, c.dims.T - t)}, 1
    );
  }
  Measure m{0, 0};
  for_each_form(c, [&](const Options& o) {
    const at::Tensor a = run(c.op, in, {}, o).o.narrow(1, 0, t);
    const at::Tensor b = run(c.op, changed, {}, o).o.narrow(1, 0, t);
    m.error += at::equal(a, b) ? 0 : 1;
  });
  return m;
}

// Counts forms in which another batch row or head moves a bit of this one.
Measure independent(const Case& c) {
  Case wide = c;
  wide.dims.B = std::max<int64_t>(2, c.dims.B);
  wide.dims.G = std::max<int64_t>(2, c.dims.G);
  wide.dims.H = wide.dims.G * std::max<int64_t>(1, c.dims.H / c.dims.G);
  const int64_t r = wide.dims.H / wide.dims.G;
  const Inputs in = sample_inputs(wide, at::kDouble);
  const Inputs changed = map_inputs(c, in, [&](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.select(0, 0).mul_(0.5);
    const int64_t width = x.size(2) == wide.dims.H && wide.dims.H != wide.dims.G ? r : 1;
    y.narrow(2, 0, width).mul_(0.5);
    return y;
  });
  Measure m{0, 0};
  const int64_t kept = c.op.name == "scan" ? 1 : r;
  for_each_form(c, [&](const Options& o) {
    const at::Tensor a = run(c.op, in, {}, o).o, b = run(c.op, changed, {}, o).o;
    const auto rest = [&](const at::Tensor& x) {
      return x.narrow(0, 1, x.size(0) - 1).narrow(2, kept, x.size(2) - kept);
    };
    m.error += at::equal(rest(a), rest(b)) ? 0 : 1;
  });
  return m;
}

Measure grouped(const Case& c) {
  if (c.op.name == "scan") return {.applies = false};
  Case some = c;
  some.dims.G = 2;
  some.dims.H = 6;
  const Inputs in = sample_inputs(some, at::kDouble);
  Inputs repeated = map_inputs(c, in, [&](const at::Tensor& x) {
    return x.size(2) == 6 ? x : x.repeat_interleave(3, 2);
  });
  Measure m{0, kExact};
  for_each_form(c, [&](const Options& o) {
    m.error =
        std::max(m.error, relative_error(run(c.op, in, {}, o).o, run(c.op, repeated, {}, o).o));
  });
  return m;
}

double dot_product(const at::Tensor& a, const at::Tensor& b) {
  const auto real = [](const at::Tensor& x) {
    return x.is_complex() ? at::view_as_real(x.resolve_conj()) : x;
  };
  return (real(a) * real(b)).sum().item<double>();
}

// The derivative along a random direction of every input at once, against a five-point difference.
Measure gradients(const Case& c) {
  const Inputs at_point = sample_inputs(c, at::kDouble);
  at::Generator generator = at::detail::createCPUGenerator(c.seed + 7);
  const auto random_like = [&](const at::Tensor& x) {
    return at::randn(x.sizes(), generator, x.options().device(at::kCPU)).to(c.device);
  };
  const Inputs direction = map_inputs(c, at_point, random_like);
  Measure m{0, 1e-8};
  for (const char* form : {"recurrent", "parallel", "chunked"}) {
    const Options o = with(c, form, 7);
    const Result shape = run(c.op, at_point, {}, o);
    const at::Tensor w = random_like(shape.o);
    const auto loss = [&](const Inputs& in) {
      const Result y = run(c.op, in, {}, o);
      at::Tensor L = (at::real(y.o * w)).sum();
      if (y.norm.defined()) L = L + y.norm.sum();
      for (const at::Tensor& part : y.state.parts) {
        if (part.is_floating_point()) L = L + part.sum();
        if (part.is_complex()) L = L + at::real(part).sum();
      }
      return L;
    };
    const Inputs leaves = map_inputs(c, at_point, [](const at::Tensor& x) {
      return x.detach().clone().requires_grad_(true);
    });
    std::vector<at::Tensor> list, along;
    for (const Input& one : c.op.inputs) {
      if (!(leaves.*one.tensor).defined()) continue;
      list.push_back(leaves.*one.tensor);
      along.push_back(direction.*one.tensor);
    }
    double exact = 0;
    {
      const c10::AutoGradMode graph(true);
      const auto grads = torch::autograd::grad({loss(leaves)}, list, {}, {}, false, true);
      for (size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined())
          exact += dot_product(grads[i], along[i]);  // order 0 reads no q and no k
      }
    }
    const auto moved = [&](double h) {
      Inputs in = at_point;
      for (const Input& one : c.op.inputs) {
        at::Tensor& x = in.*one.tensor;
        if (x.defined()) x = x + h * direction.*one.tensor;
      }
      return loss(in).item<double>();
    };
    const double h = 3e-4;
    const double difference =
        (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    const double scale = std::max(std::abs(loss(at_point).item<double>()), std::abs(exact));
    m.error = std::max(m.error, std::abs(exact - difference) / std::max(scale, 1.0));
  }
  return m;
}

// The map from v to o is linear: o(x + 2 y) = o(x) + 2 o(y).
Measure linear_in_v(const Case& c) {
  Case another = c;
  another.seed += 1;
  const Inputs in = sample_inputs(c, at::kDouble);
  Inputs other = in, mixed = in;
  other.v = sample_inputs(another, at::kDouble).v;
  mixed.v = in.v + 2 * other.v;
  const Options o = with(c, "chunked");
  const at::Tensor sum = run(c.op, in, {}, o).o + 2 * run(c.op, other, {}, o).o;
  return {relative_error(run(c.op, mixed, {}, o).o, sum), kExact};
}

Measure any_strides(const Case& c) {
  const Inputs in = sample_inputs(c, at::kDouble);
  const Inputs strided = map_inputs(c, in, [](const at::Tensor& x) {
    return x.transpose(1, x.dim() - 1).contiguous().transpose(1, x.dim() - 1);
  });
  Measure m{0, kExact};
  for_each_form(c, [&](const Options& o) {
    m.error = std::max(m.error, result_error(run(c.op, strided, {}, o), run(c.op, in, {}, o)));
  });
  return m;
}

// Counts parts of the state whose size is not what zero_state says.
Measure state_size(const Case& c) {
  const Inputs in = sample_inputs(c, at::kFloat);
  Measure m{0, 0};
  for_each_form(c, [&](const Options& o) {
    const State after = run(c.op, in, {}, o).state, said = c.op.zero_state(in, c.dims.T, o);
    if (after.bytes() != said.bytes() || after.parts.size() != said.parts.size()) m.error += 1;
    for (size_t i = 0; i < std::min(after.parts.size(), said.parts.size()); ++i) {
      m.error += after.parts[i].sizes() == said.parts[i].sizes() ? 0 : 1;
    }
  });
  return m;
}

Measure same_bits(const Case& c) {
  const Inputs in = sample_inputs(c, at::kFloat);
  Measure m{0, 0};
  for_each_form(c, [&](const Options& o) {
    m.error +=
        at::equal(run(c.op, in, {}, o).o, run(c.op, sample_inputs(c, at::kFloat), {}, o).o) ? 0 : 1;
  });
  return m;
}

Inputs to_type(const Case& c, const Inputs& in, at::ScalarType type, at::Device device) {
  return map_inputs(c, in, [&](const at::Tensor& x) {
    return x.to(
        device, x.is_complex() ? c10::toComplexType(type == at::kDouble ? type : at::kFloat) : type
    );
  });
}

// Error of the type against fp64 on the same rounded inputs; a GPU may err twice as much as the CPU.
Measure narrow(const Case& c, at::ScalarType type, double bound) {
  Case on_cpu = c;
  on_cpu.device = at::kCPU;
  const Inputs rounded = to_type(c, sample_inputs(on_cpu, at::kDouble), type, at::kCPU);
  const Options o = with(c, "chunked");
  const at::Tensor exact = run(c.op, to_type(c, rounded, at::kDouble, at::kCPU), {}, o).o;
  const auto error_on = [&](at::Device device) {
    const at::Tensor got = run(c.op, to_type(c, rounded, type, device), {}, o).o.cpu();
    return relative_error(got.to(exact.scalar_type()), exact);
  };
  if (c.device.is_cpu()) return {error_on(at::kCPU), bound};
  return {error_on(c.device), 2 * error_on(at::kCPU) + 1e-5};
}

Measure single_precision(const Case& c) { return narrow(c, at::kFloat, 1e-4); }
Measure bfloat_precision(const Case& c) { return narrow(c, at::kBFloat16, 1.0 / 128); }
Measure half_precision(const Case& c) { return narrow(c, at::kHalf, 1.0 / 1024); }

// Counts values that are not finite in 65,536 tokens: without decay, with a strong one, with resets.
Measure long_time(const Case& c) {
  Case some = c;
  some.dims = {.B = 1, .T = 65536, .H = 1, .G = 1, .K = 4, .V = 4};
  Inputs in = sample_inputs(some, at::kFloat);
  Options o = with(c, "auto", c.variant.options.chunk);
  o.log_norm = false;  // so that attention may take its fused form
  Measure m{0, 0};
  const auto count = [&] {
    const Result y = run(c.op, in, {}, o);
    m.error += (at::isfinite(y.o).logical_not()).sum().item<double>();
  };
  const c10::InferenceMode no_graph;
  if (!in.g.defined()) {
    count();
    return m;
  }
  for (const double g : {0.0, -20.0}) {
    in.g = at::full_like(in.g, g);
    count();
  }
  in.g.narrow(1, 1000, 1).fill_(-std::numeric_limits<double>::infinity());
  count();
  return m;
}

// Counts wrong inputs that are not refused with a line that begins with the op's name.
Measure refuses(const Case& c) {
  const Inputs good = sample_inputs(c, at::kFloat);
  const Options o = with(c, "chunked");
  Measure m{0, 0};
  const auto refused = [&](const Inputs& in, const State& state, const Options& options) {
    try {
      run(c.op, in, state, options);
    } catch (const UsageError& error) {
      if (std::string_view(error.what()).starts_with(fmt::format("[{}] ", c.op.name))) return;
    } catch (const std::exception&) {
    }
    m.error += 1;
  };
  for (const Input& one : c.op.inputs) {
    if (!(good.*one.tensor).defined()) continue;
    Inputs longer = good, whole = good, flat = good, elsewhere = good;
    const at::Tensor& x = good.*one.tensor;
    longer.*one.tensor = at::cat({x, x.narrow(1, 0, 1)}, 1);
    whole.*one.tensor = x.is_complex() ? at::real(x).to(at::kInt) : x.to(at::kInt);
    flat.*one.tensor = x.select(1, 0);
    elsewhere.*one.tensor = x.to(at::kMeta);
    refused(longer, {}, o);
    refused(whole, {}, o);
    refused(flat, {}, o);
    if (c.op.inputs.size() > 1) refused(elsewhere, {}, o);
  }
  Options nothing = o, unknown = o, nan = o;
  nothing.chunk = 0;
  unknown.form = "quick";
  nan.scale = std::numeric_limits<double>::quiet_NaN();
  refused(good, {}, nothing);
  refused(good, {}, unknown);
  refused(good, {}, nan);
  refused(good, {{good.v, good.v, good.v, good.v}}, o);
  refused(tokens(c.op, good, 0, 0), {}, o);
  return m;
}

}  // namespace

const std::vector<Property>& contract() {
  static const std::vector<Property> list = {
      {"forms agree", "recurrent = parallel = chunked, chunk 1, 7, 16, 64, T", forms_agree},
      {"splits anywhere", "whole = two parts with the carried state", splits},
      {"steps", "whole = one token at a time", steps},
      {"packs", "a packed batch = its sequences alone", packs},
      {"causal", "the future moves no bit of the past", causal},
      {"independent", "batch rows and heads move no bit of each other", independent},
      {"grouped heads", "H query heads on G states = states repeated", grouped},
      {"gradients", "derivatives = differences, of o, norm and state", gradients},
      {"linear in v", "o(x + 2y) = o(x) + 2 o(y)", linear_in_v},
      {"any strides", "non-contiguous inputs give the same", any_strides},
      {"state size", "the state is as large as said", state_size},
      {"same bits", "the same seed gives the same bits", same_bits},
      {"fp32 error", "against fp64", single_precision},
      {"bf16 error", "against fp64 on the rounded inputs", bfloat_precision},
      {"fp16 error", "against fp64 on the rounded inputs", half_precision},
      {"long time", "65,536 tokens stay finite: no decay, -20, a reset", long_time},
      {"refuses", "wrong input is refused in one line", refuses},
  };
  return list;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (b.numel() == 0) return 0;
  const auto wide = [](const at::Tensor& x) {
    return x.is_complex() ? x.to(at::kComplexDouble) : x.to(at::kDouble);
  };
  const double difference = (wide(a) - wide(b)).abs().max().item<double>();
  const double largest = wide(b).abs().max().item<double>();
  if (!(difference < std::numeric_limits<double>::infinity()))
    return std::numeric_limits<double>::infinity();
  return difference / std::max(largest, 1e-30);
}

Inputs sample_inputs(const Case& c, at::ScalarType type) {
  at::manual_seed(c.seed);
  const Inputs in = c.op.sample(c.dims, c.variant, at::TensorOptions().dtype(type));
  return map_inputs(c, in, [&](const at::Tensor& x) { return x.to(c.device); });
}

}  // namespace horner
