#include "mixers/qlstm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "nn/fused/pointwise.h"
#include "nn/heads.h"
#include "nn/parameter.h"
#include "nn/precision.h"

namespace horner {

Qlstm::Qlstm(int64_t D, const Options& o)
    : Mixer("qlstm", D), o_(o), E_(o.block == "full" ? o.expand * D : D) {
  check_at_least(name(), "expand", double(o.expand), 1);
  check_at_least(name(), "conv", double(o.conv), 0);
  if (o.block == "full") {
    in_ = linear(*this, "in", D, 2 * E_);
    conv_ = short_conv(*this, "conv", E_, {o.conv, "none", true});
  } else {
    write_ = linear(*this, "write", D, E_);
  }
  gates_ = linear(*this, "gates", E_, 3 * E_, true);
  if (o.transition == "reversed") power_ = parameter(*this, "power", [&] { return at::ones({1}); });
  out_ = linear(*this, "out", E_, D);
}

at::Tensor Qlstm::mix(const at::Tensor& x, Pass& pass) {
  at::Tensor z, main = x, u;
  if (o_.block == "full") {
    const auto halves = in_(x).split(E_, -1);
    z = halves[0];
    main = conv_(halves[1], pass);
    u = main;
  } else {
    u = write_(x);
  }
  const auto gates = gates_(main).split(E_, -1);  // f, i, o
  Inputs in;
  if (!power_.defined() && pointwise_fuses(Pointwise::qlstm_gates, {gates[0], gates[1], u}, {})) {
    const auto y = pointwise(Pointwise::qlstm_gates, {gates[0], gates[1], u});
    in.g = y[0].unsqueeze(2);  // (B,T,1,E)
    in.v = y[1].unsqueeze(2);
  } else {
    const at::Tensor f = wide(gates[0]);
    in.g = power_.defined() ? wide(power_).relu() * at::log_sigmoid(-f) : at::log_sigmoid(f);
    in.g = in.g.unsqueeze(2);
    in.v = (wide(gates[1]).sigmoid() * wide(u)).unsqueeze(2);
  }
  const at::Tensor h = pass.run("scan", in).o.squeeze(2);
  if (z.defined() && pointwise_fuses(Pointwise::qlstm_out, {gates[2], h, z}, {}))
    return out_(pointwise(Pointwise::qlstm_out, {gates[2], h, z})[0]);
  const at::Tensor o = (wide(gates[2]).sigmoid() * h).to(x.scalar_type());
  return out_(z.defined() ? at::gelu(z) * o : o);
}

}  // namespace horner
