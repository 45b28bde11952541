// Properties that count violations.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>

#include <limits>

#include "core/check.h"
#include "ops/contract_parts.h"

namespace horner::contract_parts {

// Counts chunk sizes at which a bit of the output before t changes when every input from t on changes.
Measure causal(const Case& c) {
  if (c.dims.T < 2) return {};
  const Inputs in = form_inputs(c);
  const int64_t t = c.dims.T / 2;
  Case another = c;
  another.seed += 1;
  const Inputs other = form_inputs(another);
  Inputs changed;
  for (const Input& one : c.op.inputs) {
    if (!(in.*one.tensor).defined()) continue;
    changed.*one.tensor = at::cat(
        {(in.*one.tensor).narrow(1, 0, t), (other.*one.tensor).narrow(1, t, c.dims.T - t)}, 1
    );
  }
  Measure m{0, 0};
  for_each_chunk(c, [&](const Options& o) {
    const at::Tensor a = run(c.op, in, {}, o).o.narrow(1, 0, t);
    const at::Tensor b = run(c.op, changed, {}, o).o.narrow(1, 0, t);
    m.error += at::equal(a, b) ? 0 : 1;
  });
  return m;
}

// Counts chunk sizes at which another batch row or head changes a bit of this one.
Measure independent(const Case& c) {
  Case wide = c;
  wide.dims.B = std::max<int64_t>(2, c.dims.B);
  wide.dims.G = std::max<int64_t>(2, c.dims.G);
  wide.dims.H = wide.dims.G * std::max<int64_t>(1, c.dims.H / c.dims.G);
  const int64_t r = wide.dims.H / wide.dims.G;
  const Inputs in = form_inputs(wide);
  const Inputs changed = map_inputs(c, in, [&](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.select(0, 0).mul_(0.5);
    const int64_t width = x.size(2) == wide.dims.H && wide.dims.H != wide.dims.G ? r : 1;
    y.narrow(2, 0, width).mul_(0.5);
    return y;
  });
  Measure m{0, 0};
  const int64_t kept = c.op.grouped() ? r : 1;
  for_each_chunk(c, [&](const Options& o) {
    const at::Tensor a = run(c.op, in, {}, o).o, b = run(c.op, changed, {}, o).o;
    const auto rest = [&](const at::Tensor& x) {
      return x.narrow(0, 1, x.size(0) - 1).narrow(2, kept, x.size(2) - kept);
    };
    m.error += at::equal(rest(a), rest(b)) ? 0 : 1;
  });
  return m;
}

static at::Tensor nan_like(const at::Tensor& x) {
  return at::full_like(x, std::numeric_limits<double>::quiet_NaN());
}

// Counts chunk sizes at which NaN in the first row and the first group of heads reaches another row or group.
Measure nan_stays(const Case& c) {
  Case wide = c;
  wide.dims.B = std::max<int64_t>(2, c.dims.B);
  wide.dims.G = std::max<int64_t>(2, c.dims.G);
  const int64_t r = std::max<int64_t>(1, c.dims.H / c.dims.G);
  wide.dims.H = wide.dims.G * r;
  const Inputs in = form_inputs(wide);
  const Inputs broken = map_inputs(c, in, [&](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.select(0, 0).copy_(nan_like(y.select(0, 0)));
    const int64_t width = x.size(2) == wide.dims.H && wide.dims.H != wide.dims.G ? r : 1;
    y.narrow(2, 0, width).copy_(nan_like(y.narrow(2, 0, width)));
    return y;
  });
  Measure m{0, 0};
  const int64_t first = c.op.grouped() ? r : 1;
  const auto rest = [&](const at::Tensor& x) {
    return x.narrow(0, 1, x.size(0) - 1).narrow(2, first, x.size(2) - first);
  };
  for_each_chunk(c, [&](const Options& o) {
    const at::Tensor a = run(c.op, in, {}, o).o, b = run(c.op, broken, {}, o).o;
    m.error += at::equal(rest(a), rest(b)) ? 0 : 1;
  });
  return m;
}

// Counts chunk sizes at which NaN in a token changes an output before it, or before its chunk.
Measure nan_waits(const Case& c) {
  if (c.dims.T < 2) return {};
  const Inputs in = form_inputs(c);
  const int64_t t = c.dims.T / 2;
  const Inputs broken = map_inputs(c, in, [&](const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.select(1, t).copy_(nan_like(y.select(1, t)));
    return y;
  });
  Measure m{0, 0};
  for_each_chunk(c, [&](const Options& o) {
    const int64_t kept = c.form_name() == forms::kChunked ? t / o.chunk * o.chunk : t;
    const at::Tensor a = run(c.op, in, {}, o).o.narrow(1, 0, kept);
    m.error += at::equal(a, run(c.op, broken, {}, o).o.narrow(1, 0, kept)) ? 0 : 1;
  });
  return m;
}

// Counts parts of the state whose size is not what zero_state says.
Measure state_size(const Case& c) {
  const Inputs in = form_inputs(c);
  Measure m{0, 0};
  for_each_chunk(c, [&](const Options& o) {
    const State after = run(c.op, in, {}, o).state, said = c.op.zero_state(in, c.dims.T, o);
    if (after.bytes() != said.bytes() || after.parts.size() != said.parts.size()) m.error += 1;
    for (size_t i = 0; i < std::min(after.parts.size(), said.parts.size()); ++i) {
      m.error += after.parts[i].sizes() == said.parts[i].sizes() ? 0 : 1;
    }
  });
  return m;
}

Measure same_bits(const Case& c) {
  const Inputs in = form_inputs(c);
  Measure m{0, 0};
  for_each_chunk(c, [&](const Options& o) {
    m.error += at::equal(run(c.op, in, {}, o).o, run(c.op, form_inputs(c), {}, o).o) ? 0 : 1;
  });
  return m;
}

// Counts values that are not finite in 65,536 tokens: without decay, with a strong one, with resets.
Measure long_time(const Case& c) {
  Case some = c;
  some.dims = {.B = 1, .T = 65536, .H = 1, .G = 1, .K = 4, .V = 4};
  if (!c.exact()) some.dims.K = c.dims.K, some.dims.V = c.dims.V;
  Inputs in = c.exact() ? sample_inputs(some, at::kFloat) : form_inputs(some);
  const bool chunks = c.form_name() == forms::kChunked;  // auto may take a fused form instead
  Options o = with(c, chunks ? forms::kAuto : c.form_name(), c.variant.options.chunk);
  o.log_norm = false;
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
  const Options o = with(c);
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
  Inputs narrow = map_inputs(c, good, [](const at::Tensor& x) {
    return x.dim() == 4 ? x.narrow(3, 0, 0) : x;  // K = V = 0
  });
  refused(narrow, {}, o);
  Inputs cut = good;
  cut.cu_seqlens = at::tensor({int64_t(0), c.dims.T}, at::kLong).to(at::kMeta);
  refused(cut, {}, o);
  return m;
}

}  // namespace horner::contract_parts
