#include "mixers/qlstm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

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
  at::Tensor branch, main = x, u;
  if (o_.block == "full") {
    const auto halves = in_(x).split(E_, -1);
    branch = at::gelu(halves[0]);
    main = conv_(halves[1], pass);
    u = main;
  } else {
    u = write_(x);
  }
  const auto gates = wide(gates_(main)).split(E_, -1);  // f, i, o
  Inputs in;
  in.g = power_.defined() ? wide(power_).relu() * at::log_sigmoid(-gates[0])
                          : at::log_sigmoid(gates[0]);
  in.g = in.g.unsqueeze(2);  // (B,T,1,E)
  in.v = (gates[1].sigmoid() * wide(u)).unsqueeze(2);
  const at::Tensor h = pass.run("scan", in).o.squeeze(2);
  const at::Tensor o = (gates[2].sigmoid() * h).to(x.scalar_type());
  return out_(branch.defined() ? branch * o : o);
}

}  // namespace horner
