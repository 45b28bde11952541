// THE list of mixers. Nothing else knows their names: commands, reports, models and tests walk it.
#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"
#include "mixers/conv.h"
#include "mixers/deltanet.h"
#include "mixers/gated_deltanet.h"
#include "mixers/gla.h"
#include "mixers/inline_attention.h"
#include "mixers/kda.h"
#include "mixers/linear_attention.h"
#include "mixers/luna.h"
#include "mixers/mamba2.h"
#include "mixers/metala.h"
#include "mixers/mlstm.h"
#include "mixers/norm_attention.h"
#include "mixers/qlstm.h"
#include "mixers/retnet.h"
#include "mixers/rg_lru.h"
#include "mixers/s6.h"
#include "mixers/softmax.h"
#include "mixers/taylor.h"
#include "mixers/two_mamba.h"
#include "mixers/window.h"

namespace horner {
namespace {

struct About {
  std::string_view name, paper, equation;
  std::string usual;
  std::vector<std::string> variants, refused;
};

template <class M>
MixerType row(About about) {
  return {
      about.name,
      about.paper,
      about.equation,
      std::move(about.usual),
      std::move(about.variants),
      std::move(about.refused),
      [](int64_t D, const Json& json) -> std::shared_ptr<Mixer> {
        typename M::Options options;
        from_json(options, json);
        return std::make_shared<M>(D, options);
      },
      [](std::string_view text) {
        typename M::Options options;
        from_text(options, text);
        return to_json(options);
      },
      [] { return describe<typename M::Options>(); },
  };
}

}  // namespace

const std::vector<MixerType>& mixers() {
  static const std::vector<MixerType> list = {
      row<Softmax>(
          {"softmax",
           "1706.03762",
           "o_t = sum_s e^{q_t.k_s/sqrt K} v_s / sum_s e^{q_t.k_s/sqrt K}",
           "heads=16",
           {"",
            "groups=2,qk_norm=true",
            "norm=l2,output_gate=post",
            "norm=rms,input_gate=true",
            "norm=layer,feature=elu1",
            "norm=unit_d,position.kind=none",
            "norm=count,centre=learned",
            "norm=gate,clamp=5",
            "norm=cumgate",
            "norm=detach",
            "norm=clampden,feature=relu",
            "norm=none,output_gate=pre",
            "decay=softplus,conv=2,conv_activation=none",
            "decay=softplus,norm=count,groups=2",
            "feature=cosine,centre=mean",
            "causal=false,norm=count",
            "position.kind=selective_rope",
            "position.kind=selective_rope,groups=2,position.rank=3,position.increment=skip,"
            "position.bias=true,position.gate=angle,position.temperature=rfa"},
           {"heads=3",
            "groups=3",
            "conv=-1",
            "position.theta=1,position.temperature=rfa",
            "heads=16",
            "causal=false,norm=cumgate",
            "causal=false,decay=softplus"}}
      ),
      row<Taylor>(
          {"taylor",
           "2507.23632",
           "o_t = sum_s p(x_ts) v_s / sum_s p(x_ts), p(x) = sum_n x^n/n!, x_ts = q_t.k_s/sqrt K",
           "heads=16",
           {"",
            "order=4,groups=2",
            "order=3,norm=l2,output_gate=post",
            "order=1,norm=rms,feature=relu",
            "norm=layer,qk_norm=true",
            "norm=unit_d,conv=4",
            "norm=count,input_gate=true",
            "norm=gate",
            "norm=cumgate",
            "norm=detach",
            "norm=clampden,groups=2",
            "norm=none,feature=cosine",
            "decay=softplus,centre=learned,position.kind=none",
            "decay=softplus,decay_place=inside",
            "causal=false,decay=softplus,position.kind=none",
            "coefficients=learned",
            "coefficients=learned,norm=l2,order=3",

            "position.kind=selective_rope"},
           {"order=3", "order=-1", "order=1,norm=clampden", "decay_place=inside", "heads=5"}}
      ),
      row<Window>(
          {"window",
           "2509.24552",
           "o_t = sum over the last w tokens of softmax(q_t.k_s/sqrt K) v_s",
           "heads=16",
           {"window=5",
            "window=4,groups=2,sinks=2",
            "window=64,position.kind=none",
            "window=4,causal=false"},
           {"window=0", "sinks=-1", "groups=3", "causal=false,position.kind=selective_rope"}}
      ),
      row<LinearAttention>(
          {"linear",
           "2006.16236",
           "o_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s)",
           "heads=16",
           {"",
            "feature=relu,groups=2",
            "feature=identity,norm=none,position.kind=rope",
            "feature=identity,norm=none,position.kind=selective_rope",
            "feature=cosine,norm=none",
            "feature=exp,conv=4",
            "feature=relu2",
            "feature=favor,feature_dim=6",
            "feature=fourier,feature_dim=256",
            "feature=hedgehog,groups=2",
            "power=2,feature=relu",
            "power=3,series=true",
            "power=2,feature=identity",
            "causal=false,feature=exp,groups=2"},
           {"heads=3",
            "feature=identity",
            "feature=cosine",
            "power=0",
            "series=true",
            "feature=favor,feature_dim=0",
            "eps=-1"}}
      ),
      row<RetNet>(
          {"retnet",
           "2307.08621",
           "S_t = a S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = 1 - 2^{-5-h}",
           "",
           {"", "norm=rms,position.kind=none", "expand_k=0.5,expand_v=1"},
           {"heads=3", "expand_v=0.1"}}
      ),
      row<Gla>(
          {"gla",
           "2312.06635",
           "S_t = diag(a_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = sigmoid(x W1 W2 + "
           "b)^{1/16}",
           "",
           {"",
            "norm=layer,conv=4",
            "norm=none,gate=false",
            "position.kind=rope,tie_pair_decay=true",
            "position.kind=selective_rope"},
           {"heads=3", "rank=0", "temperature=0", "heads=8,tie_pair_decay=true"}}
      ),
      row<Mamba2>(
          {"mamba2",
           "2405.21060",
           "S_t = e^{-A dt_t} S_{t-1} + dt_t B_t^T x_t, y_t = C_t S_t + D x_t",
           "",
           {"head=8,state=6", "head=8,state=6,groups=2,skip=false", "head=16,state=4,conv=0"},
           {"head=5", "state=0", "head=8,groups=3", "head=8,step_low=0"}}
      ),
      row<Mlstm>(
          {"mlstm",
           "2405.04517",
           "C_t = f_t C_{t-1} + e^{i_t} k_t^T v_t, h_t = q_t C_t / max(|q_t n_t|, 1)",
           "",
           {"heads=2", "heads=2,input_bias=0", "input_gate=sigmoid,heads=2,input_bias=0"},
           {"heads=3", "cap=0", "layers=0"}}
      ),
      row<DeltaNet>(
          {"deltanet",
           "2406.06484",
           "S_t = (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8",
           {"", "negative=true,conv=0", "position.kind=selective_rope"},
           {"heads=3", "conv=-1"}}
      ),
      row<GatedDeltaNet>(
          {"gated_deltanet",
           "2412.06464",
           "S_t = a_t (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8,expand_v=1",
           {"",
            "negative=true,expand_v=1",
            "heads=2,value_heads=4,conv=2",
            "position.kind=selective_rope"},
           {"heads=3", "value_heads=6", "conv=-1", "norm_eps=-1"}}
      ),
      row<Kda>(
          {"kda",
           "2510.26692",
           "S_t = (I - b_t k_t^T k_t) diag(a_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8",
           {"", "negative=true,conv=0", "heads=2,rank=3,expand_k=0.5,conv=2", "position.kind=rope"},
           {"heads=3", "rank=-1", "conv=-1", "norm_eps=-1"}}
      ),
      row<MetaLa>(
          {"metala",
           "2411.10741",
           "S_t = diag(a_t) S_{t-1} + (1 - a_t)^T v_t, o_t = q_t S_t/sqrt K + sigmoid(w_t v_t)",
           "heads=8",
           {"", "key=own,conv=0", "augment=false,conv=2", "norm=rms,heads=2"},
           {"heads=3", "temperature=0", "conv=-1"}}
      ),
      row<Luna>(
          {"luna",
           "2512.08061",
           "o_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s), phi learned",
           "heads=16",
           {"map.hidden=8,map.channels=16",
            "map.shared=true,map.hidden=8,map.channels=16,position.kind=rope",
            "map.projections=4,map.envelope=gauss,map.hidden=8,map.channels=16",
            "causal=false,map.hidden=8,map.channels=16",
            "map.nonnegative=false,norm=none,map.hidden=8"},
           {"heads=3", "map.nonnegative=false", "map.channels=0", "eps=-1"}}
      ),
      row<NormAttention>(
          {"norm_attention",
           "2405.15731",
           "S_t = S_{t-1} + k_t^T v_t, o_t = q_t S_t / eta(x_t)",
           "heads=8",
           {"",
            "normaliser=softplus,heads=2",
            "normaliser=sigmoid,key=6,heads=2",
            "normaliser=exp_softplus,offset=linear,feature=elu1,scale_keys=true,conv=4,heads=4",
            "normaliser=exp_elu,offset=linear",
            "normaliser=exp_sigmoid",
            "normaliser=exp_exp",
            "causal=false,heads=2"},
           {"heads=3", "normaliser=exp_exp,offset=linear", "key=-1", "causal=false,conv=4"}}
      ),
      row<S6>(
          {"s6",
           "2312.00752",
           "h_t = e^{-A dt_t} h_{t-1} + dt_t u_t B_t, y_t = C_t h_t + D u_t",
           "",
           {"state=4", "state=4,conv=0,rank=3", "state=3,block=bare,expand=1"},
           {"state=0", "expand=0", "conv=-1"}}
      ),
      row<RgLru>(
          {"rg_lru",
           "2402.19427",
           "h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t, a = e^{-c r_t softplus(L)}",
           "heads=16",
           {"", "expand=1.5,conv=0"},
           {"heads=3", "power=0", "conv=-1"}}
      ),
      row<Qlstm>(
          {"qlstm",
           "2405.15731",
           "h_t = sigmoid(f_t) h_{t-1} + sigmoid(i_t) u_t, o_t = sigmoid(o_t) h_t",
           "",
           {"",
            "transition=reversed",
            "block=plain",
            "block=plain,transition=reversed",
            "conv=0,expand=1"},
           {"expand=0", "conv=-1"}}
      ),
      row<TwoMamba>(
          {"two_mamba",
           "2602.17363",
           "o_t = sum_s d_ts (q_t.k_s)^2 v_s / sum_s d_ts (q_t.k_s)^2, d_ts the decay since s",
           "heads=16",
           {"", "kernel=exp", "kernel=linear", "conv=4,conv_activation=silu,heads=2"},
           {"heads=3", "conv=-1"}}
      ),
      row<InlineAttention>(
          {"inline",
           "2412.06590",
           "o_t = sum_s w_ts v_s, w_ts = q_t.k_s - mean_s(q_t.k_s) + 1/t",
           "heads=32",
           {"",
            "residual=0",
            "feature=relu,residual=4",
            "feature=exp",
            "causal=false,feature=leaky_relu",
            "causal=false,residual=0"},
           {"heads=3", "residual=-1", "causal=false,residual=2"}}
      ),
      row<Conv>(
          {"conv",
           "2312.04927",
           "y_t = (x_t W + b1) * (h_0 x_t + h_1 x_{t-1} + h_2 x_{t-2} + b2) + x_t",
           "",
           {"", "kernel=5,residual=false", "kind=dense", "kind=dense,kernel=4"},
           {"kernel=1"}}
      ),
  };
  return list;
}

const MixerType& find_mixer(std::string_view name) {
  std::vector<std::string> names;
  for (const MixerType& type : mixers()) {
    if (type.name == name) return type;
    names.emplace_back(type.name);
  }
  throw UsageError("{}", unknown("mixer", name, names));
}

bool has_setting(const MixerType& type, std::string_view name) {
  const std::vector<Description> known = type.describe();
  return std::any_of(known.begin(), known.end(), [&](const auto& d) { return d.name == name; });
}

std::shared_ptr<Mixer> make_mixer(const MixerSpec& spec, int64_t D) {
  const MixerType& type = find_mixer(spec.name);
  return type.make(D, type.parse(spec.settings_text()));
}

}  // namespace horner
