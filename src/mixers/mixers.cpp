// THE list of mixers. Nothing else knows their names: commands, reports, models and tests walk it.
#include <algorithm>

#include "core/check.h"
#include "core/nearest.h"
#include "mixers/centres.h"
#include "mixers/conv.h"
#include "mixers/deltanet.h"
#include "mixers/gated_deltanet.h"
#include "mixers/gla.h"
#include "mixers/hybrid.h"
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
  std::string_view name, title, paper, equation;
  std::string usual;
  std::vector<std::string> variants, refused;
  std::string_view use;
};

template <class M>
MixerType row(About about) {
  return {
      about.name,
      about.title,
      about.paper,
      about.equation,
      std::move(about.usual),
      std::move(about.variants),
      std::move(about.refused),
      [](int64_t D, const Json& json) -> std::shared_ptr<Mixer> {
        HORNER_CHECK(D >= 1, "a mixer's width D must be at least 1, got {}", D);
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
      about.use,
  };
}

}  // namespace

const std::vector<MixerType>& mixers() {
  static const std::vector<MixerType> list = {
      row<Softmax>(
          {"softmax",
           "Softmax",
           "1706.03762",
           "o_t = sum_s e^{q_t.k_s/sqrt K} v_s / sum_s e^{q_t.k_s/sqrt K}",
           "heads=16",
           {"",
            "groups=2,qk_norm=true",
            "norm=l2,output_gate=post",
            "norm=rms,input_gate=true",
            "norm=layer,feature=elu1,norm_bias=true",
            "key=6,bias=true,norm=rms,norm_start=unit,position.kind=none",
            "norm=unit_d,position.kind=none",
            "heads=3,groups=1,key=6,value=5,qkv_bias=true,qk_norm=true,qk_norm_eps=1e-5",
            "position.scaling=linear",
            "position.scaling=llama3,position.scaling_length=16",
            "norm=count,centre=learned",
            "norm=gate,clamp=5",
            "norm=cumgate",
            "norm=detach",
            "norm=clampden,feature=relu",
            "norm=none,output_gate=pre",
            "decay=softplus,conv=2,conv_activation=none",
            "decay=softplus,norm=count,groups=2",
            "decay=shifted,norm=layer,norm_bias=true,input_gate=true,position.kind=none",
            "feature=cosine,centre=mean",
            "causal=false,norm=count",
            "position.kind=selective_rope",
            "position.kind=selective_rope,groups=2,position.rank=3,position.increment=skip,"
            "position.bias=true,position.gate=angle,position.temperature=rfa"},
           {"heads=3",
            "heads=3,key=4",
            "groups=3",
            "conv=-1",
            "value=-1",
            "bias=true,qkv_bias=true",
            "position.scaling=linear,position.scaling_factor=0.5",
            "position.scaling=llama3,position.scaling_low=4",
            "position.kind=none,position.scaling=linear",
            "position.theta=1,position.temperature=rfa",
            "heads=16",
            "causal=false,norm=cumgate",
            "causal=false,decay=softplus"},
           "The reference: nothing else here recalls better. Take it while its cache, which grows "
           "with every token, fits."}
      ),
      row<Taylor>(
          {"taylor",
           "Taylor",
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
           {"order=3",
            "order=-1",
            "order=1,norm=clampden",
            "decay_place=inside",
            "decay=shifted",
            "heads=5"},
           "Softmax's behaviour with a state of fixed size, where exact recall matters. The state "
           "has C(K+N,N) rows per head, so keep K at 16 or 32 and the order at 2."}
      ),
      row<Window>(
          {"window",
           "Window",
           "2509.24552",
           "o_t = sum over the last w tokens of softmax(q_t.k_s/sqrt K) v_s",
           "heads=16",
           {"window=5",
            "window=4,groups=2,sinks=2",
            "window=64,position.kind=none",
            "window=3,heads=3,groups=1,head=6",
            "window=4,causal=false"},
           {"window=0",
            "sinks=-1",
            "groups=3",
            "head=-1",
            "heads=3",
            "causal=false,position.kind=selective_rope"},
           "Local structure, beside a mixer that carries the far past. Alone it forgets what is "
           "older than its window."}
      ),
      row<Centres>(
          {"centres",
           "Centres",
           "2309.16354",
           "o_t = sum_s w_ts v_s / sum_s w_ts, w_ts = e^{q_t.m_c} p(q_t.(k_s - m_c)), m_c the "
           "centre nearest to k_s",
           "heads=16",
           {"count=3",
            "count=5,groups=2,qk_norm=true",
            "count=3,order=2",
            "count=2,order=2,groups=2,norm=count,decay=softplus",
            "count=3,norm=l2,position.kind=none",
            "count=3,order=2,causal=false"},
           {"count=0",
            "order=1",
            "order=-2",
            "clamp=5",
            "centre=mean",
            "count=100000000",
            "heads=3",
            "groups=3"},
           "Softmax without a growing cache and without training: keys are replaced by the nearest "
           "of C centres, which k-means finds. Better beyond a window than alone (hybrid)."}
      ),
      row<Hybrid>(
          {"hybrid",
           "Hybrid",
           "2410.10254",
           "o_t = z_t q_t S_t + (1 - z_t) sum over the last w tokens of softmax(q_t.k_s/sqrt K) "
           "v_s, S_t a recurrence",
           "heads=16",
           {"window=5,sinks=2",
            "window=5,sinks=2,far=none,groups=2,qk_norm=true",
            "window=4,sinks=1,far=linear,groups=2",
            "window=4,sinks=0,far=linear,feature=luna,map.hidden=8,map.channels=16",
            "window=3,sinks=2,far=taylor,groups=2",
            "window=1,sinks=3,far=taylor,order=4,position.kind=none",
            "window=4,sinks=2,far=centres,count=3,groups=2",
            "window=4,sinks=2,far=centres,count=2,order=2",
            "window=5,sinks=2,far=gla,groups=2,rank=3",
            "window=5,sinks=0,far=mlstm,groups=2,rotate=false",
            "window=5,sinks=2,far=gated_deltanet,heads=3,groups=1,key=6,value=5,qkv_bias=true",
            "window=5,sinks=2,far=kda,groups=2,rank=3,bias=true,rotate=false"},
           {"window=0",
            "sinks=-1",
            "groups=3",
            "heads=3",
            "key=-1",
            "bias=true,qkv_bias=true",
            "far=taylor,order=3",
            "far=centres,order=1",
            "far=centres,count=0",
            "far=centres,rotate=false",
            "far=linear,feature=luna,map.nonnegative=false",
            "far=kda,rank=0"},
           "The layer that a trained softmax model is converted to: its q, k, v and output weights "
           "fit unchanged, near tokens are read exactly, and a recurrence carries the far ones."}
      ),
      row<LinearAttention>(
          {"linear",
           "LinearAttention",
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
            "feature=relu,norm=l2",
            "feature=relu,norm=gate",
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
            "eps=-1"},
           "The simplest recurrent attention, and the baseline of the others. It is weak where "
           "many pairs must be recalled."}
      ),
      row<RetNet>(
          {"retnet",
           "RetNet",
           "2307.08621",
           "S_t = a S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = 1 - 2^{-5-h}",
           "",
           {"", "norm=rms,position.kind=none", "expand_k=0.5,expand_v=1"},
           {"heads=3", "expand_v=0.1"},
           "Data with a known, fixed rate of forgetting. There is no gate to learn."}
      ),
      row<Gla>(
          {"gla",
           "GLA",
           "2312.06635",
           "S_t = diag(a_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = sigmoid(x W1 W2 + "
           "b)^{1/16}",
           "",
           {"",
            "norm=layer,conv=4",
            "norm=none,gate=false",
            "position.kind=rope,tie_pair_decay=true",
            "position.kind=selective_rope"},
           {"heads=3", "rank=0", "temperature=0", "heads=8,tie_pair_decay=true"},
           "Language models with a small state: how fast each key channel forgets is learnt from "
           "the token."}
      ),
      row<Mamba2>(
          {"mamba2",
           "Mamba2",
           "2405.21060",
           "S_t = e^{-A dt_t} S_{t-1} + dt_t B_t^T x_t, y_t = C_t S_t + D x_t",
           "",
           {"head=8,state=6", "head=8,state=6,groups=2,skip=false", "head=16,state=4,conv=0"},
           {"head=5", "state=0", "head=8,groups=3", "head=8,step_low=0"},
           "Language models that should train fast: one decay per head, and one key and query for "
           "all heads."}
      ),
      row<Mlstm>(
          {"mlstm",
           "MLSTM",
           "2405.04517",
           "C_t = f_t C_{t-1} + e^{i_t} k_t^T v_t, h_t = q_t C_t / max(|q_t n_t|, 1)",
           "",
           {"heads=2", "heads=2,input_bias=0", "input_gate=sigmoid,heads=2,input_bias=0"},
           {"heads=3", "cap=0", "layers=0"},
           "Data in which a rare token must be stored strongly: its input gate is an exponential."}
      ),
      row<DeltaNet>(
          {"deltanet",
           "DeltaNet",
           "2406.06484",
           "S_t = (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8",
           {"", "negative=true,conv=0", "position.kind=selective_rope"},
           {"heads=3", "conv=-1"},
           "Recall with a small state: it overwrites the value of a key instead of adding to it."}
      ),
      row<GatedDeltaNet>(
          {"gated_deltanet",
           "GatedDeltaNet",
           "2412.06464",
           "S_t = a_t (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8,expand_v=1",
           {"",
            "negative=true,expand_v=1",
            "heads=2,value_heads=4,conv=2",
            "position.kind=selective_rope"},
           {"heads=3", "value_heads=6", "conv=-1", "norm_eps=-1"},
           "As deltanet, where the data also ask for forgetting: one decay per head. A common "
           "recurrent layer of hybrid models."}
      ),
      row<Kda>(
          {"kda",
           "KDA",
           "2510.26692",
           "S_t = (I - b_t k_t^T k_t) diag(a_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K",
           "heads=8",
           {"", "negative=true,conv=0", "heads=2,rank=3,expand_k=0.5,conv=2", "position.kind=rope"},
           {"heads=3", "rank=-1", "conv=-1", "norm_eps=-1"},
           "As gated_deltanet, with a decay per key channel: finer forgetting, more work per "
           "token."}
      ),
      row<MetaLa>(
          {"metala",
           "MetaLA",
           "2411.10741",
           "S_t = diag(a_t) S_{t-1} + (1 - a_t)^T v_t, o_t = q_t S_t/sqrt K + sigmoid(w_t v_t)",
           "heads=8",
           {"", "key=own,conv=0", "augment=false,conv=2", "norm=rms,heads=2"},
           {"heads=3", "temperature=0", "conv=-1"},
           "As gla with fewer projections: the key is what the decay leaves over."}
      ),
      row<Luna>(
          {"luna",
           "LUNA",
           "2512.08061",
           "o_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s), phi learned",
           "heads=16",
           {"map.hidden=8,map.channels=16",
            "map.shared=true,map.hidden=8,map.channels=16,position.kind=rope",
            "map.projections=4,map.envelope=gauss,map.hidden=8,map.channels=16",
            "causal=false,map.hidden=8,map.channels=16",
            "map.nonnegative=false,norm=none,map.hidden=8"},
           {"heads=3", "map.nonnegative=false", "map.channels=0", "eps=-1"},
           "A feature map that is learnt from data. Each head runs a small network, so it is slow."}
      ),
      row<NormAttention>(
          {"norm_attention",
           "NormAttention",
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
           {"heads=3", "normaliser=exp_exp,offset=linear", "key=-1", "causal=false,conv=4"},
           "Studies of the normaliser: the divisor is learnt instead of summed."}
      ),
      row<S6>(
          {"s6",
           "S6",
           "2312.00752",
           "h_t = e^{-A dt_t} h_{t-1} + dt_t u_t B_t, y_t = C_t h_t + D u_t",
           "",
           {"state=4",
            "state=4,conv=0,rank=3",
            "state=3,block=bare,expand=1",
            "state=3,block=ssd,expand=1"},
           {"state=0", "expand=0", "conv=-1", "block=bare", "block=ssd"},
           "Mamba's first layer: a small state for every channel, computed by a scan."}
      ),
      row<RgLru>(
          {"rg_lru",
           "RGLRU",
           "2402.19427",
           "h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t, a = e^{-c r_t softplus(L)}",
           "heads=16",
           {"", "expand=1.5,conv=0"},
           {"heads=3", "power=0", "conv=-1"},
           "The smallest state: one number per channel. Pair it with window attention, as Griffin "
           "does."}
      ),
      row<Qlstm>(
          {"qlstm",
           "QLSTM",
           "2405.15731",
           "h_t = sigmoid(f_t) h_{t-1} + sigmoid(i_t) u_t, o_t = sigmoid(o_t) h_t",
           "",
           {"",
            "transition=reversed",
            "block=plain",
            "block=plain,transition=reversed",
            "conv=0,expand=1"},
           {"expand=0", "conv=-1"},
           "An LSTM whose gates do not read the state, so that it runs in parallel: a baseline for "
           "scans."}
      ),
      row<TwoMamba>(
          {"two_mamba",
           "TwoMamba",
           "2602.17363",
           "o_t = sum_s d_ts (q_t.k_s)^2 v_s / sum_s d_ts (q_t.k_s)^2, d_ts the decay since s",
           "heads=16",
           {"",
            "kernel=exp",
            "kernel=linear",
            "conv=4,conv_activation=silu,heads=2",
            "kernel=linear,conv_activation=silu_qk,decay=false,step=false"},
           {"heads=3", "conv=-1", "kernel=exp,decay=false"},
           "Between softmax and linear, in recall and in state: squared scores with Mamba-2's "
           "decay."}
      ),
      row<InlineAttention>(
          {"inline",
           "InlineAttention",
           "2412.06590",
           "o_t = sum_s w_ts v_s, w_ts = q_t.k_s - mean_s(q_t.k_s) + 1/t",
           "heads=32",
           {"",
            "residual=0",
            "feature=relu,residual=4",
            "feature=exp",
            "causal=false,feature=leaky_relu",
            "causal=false,residual=0"},
           {"heads=3", "residual=-1", "causal=false,residual=2", "columns=4"},
           "Images and other inputs that are read in both directions, where linear attention "
           "confuses queries."}
      ),
      row<Conv>(
          {"conv",
           "Conv",
           "2312.04927",
           "y_t = (x_t W + b1) * (h_0 x_t + h_1 x_{t-1} + h_2 x_{t-2} + b2) + x_t",
           "",
           {"", "kernel=5,residual=false", "kind=dense", "kind=dense,kernel=4"},
           {"kernel=1"},
           "Not alone: a memory of three tokens before a mixer that cannot compare neighbours by "
           "itself."}
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
