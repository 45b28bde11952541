"""Written by tools/stubs.py from the list of mixers."""

from collections.abc import Sequence
from typing import Literal

import torch

from horner.nn._mixer import Mixer as Mixer
from horner.nn._model import Block as Block
from horner.nn._model import Model as _Model

__all__ = [
    "Block",
    "Centres",
    "Conv",
    "DeltaNet",
    "GLA",
    "GatedDeltaNet",
    "Hybrid",
    "InlineAttention",
    "KDA",
    "LUNA",
    "LinearAttention",
    "MLSTM",
    "Mamba2",
    "MetaLA",
    "Mixer",
    "Model",
    "NormAttention",
    "QLSTM",
    "RGLRU",
    "RetNet",
    "S6",
    "Softmax",
    "Taylor",
    "TwoMamba",
    "Window",
]

class Softmax(Mixer):
    """The mixer `softmax` (arXiv:1706.03762), (B,T,D) -> (B,T,D).

        o_t = sum_s e^{q_t.k_s/sqrt K} v_s / sum_s e^{q_t.k_s/sqrt K}

        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        causal                    a token reads the past and itself; false: both directions; default true
        key                       K: width of a query and key; 0: D / H; default 0
        value                     V: width of a value; 0: D / H; default 0
        bias                      q, k, v and out have biases; default false
        qkv_bias                  q, k and v have biases, out has none; default false
        norm_bias                 norm = layer adds a bias; default false
        norm_start                weight of rms and layer at the start; unit: 1/sqrt(V) (one, unit); default one
        norm                      what divides the sum of weighted values (sum, l2, rms, layer, unit_d, count, gate, cumgate, detach, clampden, none); default sum
        feature                   activation of q and k before the kernel (identity, relu, elu1, cosine); default identity
        centre                    vector taken from every key (none, mean, learned); default none
        clamp                     of softmax: scores above this count as this; the paper's is 5; default none
        input_gate                sigmoid gate per head on the values; default false
        output_gate               sigmoid gate per head before or after the norm (none, pre, post); default none
        decay                     log-decay per key head from x (none, softplus, shifted); default none
        conv                      kernel of the short convolution on q, k, v; 0: none; default 0
        conv_activation           after the convolution (none, silu); default silu
        qk_norm                   RMS norm of q and k per head, before the rotation; default false
        qk_norm_eps               its epsilon; default 1e-06
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        groups: int = 0,
        causal: bool = True,
        key: int = 0,
        value: int = 0,
        bias: bool = False,
        qkv_bias: bool = False,
        norm_bias: bool = False,
        norm_start: Literal["one", "unit"] = "one",
        norm: Literal["sum", "l2", "rms", "layer", "unit_d", "count", "gate", "cumgate", "detach", "clampden", "none"] = "sum",
        feature: Literal["identity", "relu", "elu1", "cosine"] = "identity",
        centre: Literal["none", "mean", "learned"] = "none",
        clamp: float | None = None,
        input_gate: bool = False,
        output_gate: Literal["none", "pre", "post"] = "none",
        decay: Literal["none", "softplus", "shifted"] = "none",
        conv: int = 0,
        conv_activation: Literal["none", "silu"] = "silu",
        qk_norm: bool = False,
        qk_norm_eps: float = 1e-06,
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Taylor(Mixer):
    """The mixer `taylor` (arXiv:2507.23632), (B,T,D) -> (B,T,D).

        o_t = sum_s p(x_ts) v_s / sum_s p(x_ts), p(x) = sum_n x^n/n!, x_ts = q_t.k_s/sqrt K

        order                     highest power N of q.k that is kept; default 2
        coefficients              of the series (taylor, learned); default taylor
        decay_place               the decay multiplies the power, or q.k inside it (outside, inside); default outside
        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        causal                    a token reads the past and itself; false: both directions; default true
        key                       K: width of a query and key; 0: D / H; default 0
        value                     V: width of a value; 0: D / H; default 0
        bias                      q, k, v and out have biases; default false
        qkv_bias                  q, k and v have biases, out has none; default false
        norm_bias                 norm = layer adds a bias; default false
        norm_start                weight of rms and layer at the start; unit: 1/sqrt(V) (one, unit); default one
        norm                      what divides the sum of weighted values (sum, l2, rms, layer, unit_d, count, gate, cumgate, detach, clampden, none); default sum
        feature                   activation of q and k before the kernel (identity, relu, elu1, cosine); default identity
        centre                    vector taken from every key (none, mean, learned); default none
        clamp                     of softmax: scores above this count as this; the paper's is 5; default none
        input_gate                sigmoid gate per head on the values; default false
        output_gate               sigmoid gate per head before or after the norm (none, pre, post); default none
        decay                     log-decay per key head from x (none, softplus, shifted); default none
        conv                      kernel of the short convolution on q, k, v; 0: none; default 0
        conv_activation           after the convolution (none, silu); default silu
        qk_norm                   RMS norm of q and k per head, before the rotation; default false
        qk_norm_eps               its epsilon; default 1e-06
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        order: int = 2,
        coefficients: Literal["taylor", "learned"] = "taylor",
        decay_place: Literal["outside", "inside"] = "outside",
        heads: int = 4,
        groups: int = 0,
        causal: bool = True,
        key: int = 0,
        value: int = 0,
        bias: bool = False,
        qkv_bias: bool = False,
        norm_bias: bool = False,
        norm_start: Literal["one", "unit"] = "one",
        norm: Literal["sum", "l2", "rms", "layer", "unit_d", "count", "gate", "cumgate", "detach", "clampden", "none"] = "sum",
        feature: Literal["identity", "relu", "elu1", "cosine"] = "identity",
        centre: Literal["none", "mean", "learned"] = "none",
        clamp: float | None = None,
        input_gate: bool = False,
        output_gate: Literal["none", "pre", "post"] = "none",
        decay: Literal["none", "softplus", "shifted"] = "none",
        conv: int = 0,
        conv_activation: Literal["none", "silu"] = "silu",
        qk_norm: bool = False,
        qk_norm_eps: float = 1e-06,
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Window(Mixer):
    """The mixer `window` (arXiv:2509.24552), (B,T,D) -> (B,T,D).

        o_t = sum over the last w tokens of softmax(q_t.k_s/sqrt K) v_s

        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        head                      width of a query, key and value; 0: D / H; default 0
        causal                    a token reads the past and itself; false: w - 1 on either side; default true
        window                    how many of the last tokens are visible, the current one included; default 128
        sinks                     how many of the first tokens stay visible; default 0
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        groups: int = 0,
        head: int = 0,
        causal: bool = True,
        window: int = 128,
        sinks: int = 0,
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Centres(Mixer):
    """The mixer `centres` (arXiv:2309.16354), (B,T,D) -> (B,T,D).

        o_t = sum_s w_ts v_s / sum_s w_ts, w_ts = e^{q_t.m_c} p(q_t.(k_s - m_c)), m_c the centre nearest to k_s

        count                     centres C of each key head; default 64
        order                     order N of the series around a centre, even; default 0
        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        causal                    a token reads the past and itself; false: both directions; default true
        key                       K: width of a query and key; 0: D / H; default 0
        value                     V: width of a value; 0: D / H; default 0
        bias                      q, k, v and out have biases; default false
        qkv_bias                  q, k and v have biases, out has none; default false
        norm_bias                 norm = layer adds a bias; default false
        norm_start                weight of rms and layer at the start; unit: 1/sqrt(V) (one, unit); default one
        norm                      what divides the sum of weighted values (sum, l2, rms, layer, unit_d, count, gate, cumgate, detach, clampden, none); default sum
        feature                   activation of q and k before the kernel (identity, relu, elu1, cosine); default identity
        centre                    vector taken from every key (none, mean, learned); default none
        clamp                     of softmax: scores above this count as this; the paper's is 5; default none
        input_gate                sigmoid gate per head on the values; default false
        output_gate               sigmoid gate per head before or after the norm (none, pre, post); default none
        decay                     log-decay per key head from x (none, softplus, shifted); default none
        conv                      kernel of the short convolution on q, k, v; 0: none; default 0
        conv_activation           after the convolution (none, silu); default silu
        qk_norm                   RMS norm of q and k per head, before the rotation; default false
        qk_norm_eps               its epsilon; default 1e-06
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        count: int = 64,
        order: int = 0,
        heads: int = 4,
        groups: int = 0,
        causal: bool = True,
        key: int = 0,
        value: int = 0,
        bias: bool = False,
        qkv_bias: bool = False,
        norm_bias: bool = False,
        norm_start: Literal["one", "unit"] = "one",
        norm: Literal["sum", "l2", "rms", "layer", "unit_d", "count", "gate", "cumgate", "detach", "clampden", "none"] = "sum",
        feature: Literal["identity", "relu", "elu1", "cosine"] = "identity",
        centre: Literal["none", "mean", "learned"] = "none",
        clamp: float | None = None,
        input_gate: bool = False,
        output_gate: Literal["none", "pre", "post"] = "none",
        decay: Literal["none", "softplus", "shifted"] = "none",
        conv: int = 0,
        conv_activation: Literal["none", "silu"] = "silu",
        qk_norm: bool = False,
        qk_norm_eps: float = 1e-06,
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Hybrid(Mixer):
    """The mixer `hybrid` (arXiv:2410.10254), (B,T,D) -> (B,T,D).

        o_t = z_t q_t S_t + (1 - z_t) sum over the last w tokens of softmax(q_t.k_s/sqrt K) v_s, S_t a recurrence

        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        key                       K: width of a query and key; 0: D / H; default 0
        value                     V: width of a value; 0: D / H; default 0
        bias                      q, k, v and out have biases; default false
        qkv_bias                  q, k and v have biases, out has none; default false
        qk_norm                   RMS norm of q and k per head, before the rotation; default false
        qk_norm_eps               its epsilon; default 1e-06
        window                    how many of the last tokens softmax reads, the current one included; default 64
        sinks                     how many of the first tokens softmax reads as well; default 4
        far                       what reads the tokens beyond (none, linear, taylor, centres, gla, mlstm, gated_deltanet, kda); default gated_deltanet
        feature                   linear: the feature map (elu1, relu, relu2, exp, hedgehog, luna); default hedgehog
        map_projections           M; default 16
        map_channels              R: functions per projection; there are M R features; default 4
        map_hidden                E: hidden width of a function; default 64
        map_shared                one network with R outputs instead of R networks; default false
        map_nonnegative           relu at the end; default true
        map_envelope              factor on all features (none, gauss); default none
        count                     centres: how many for each key head; default 64
        order                     centres and taylor: order of the series, even; none: 0 and 2; default none
        rank                      gla and kda: rank of the decay's projection; default 16
        rotate                    recurrences that read all tokens: q and k are rotated as in the window; default true
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        groups: int = 0,
        key: int = 0,
        value: int = 0,
        bias: bool = False,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        qk_norm_eps: float = 1e-06,
        window: int = 64,
        sinks: int = 4,
        far: Literal["none", "linear", "taylor", "centres", "gla", "mlstm", "gated_deltanet", "kda"] = "gated_deltanet",
        feature: Literal["elu1", "relu", "relu2", "exp", "hedgehog", "luna"] = "hedgehog",
        map_projections: int = 16,
        map_channels: int = 4,
        map_hidden: int = 64,
        map_shared: bool = False,
        map_nonnegative: bool = True,
        map_envelope: Literal["none", "gauss"] = "none",
        count: int = 64,
        order: int | None = None,
        rank: int = 16,
        rotate: bool = True,
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LinearAttention(Mixer):
    """The mixer `linear` (arXiv:2006.16236), (B,T,D) -> (B,T,D).

        o_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s)

        heads                     query heads H; default 4
        groups                    key/value heads G; 0: as many as heads; default 0
        key                       K: width of a query and key; 0: D / H; default 0
        bias                      q, k, v and out have biases; default false
        causal                    a token reads the past and itself; false: both directions; default true
        feature                   the feature map (identity, elu1, relu, relu2, cosine, exp, favor, fourier, hedgehog); default elu1
        feature_dim               random features of favor and fourier; default 64
        norm                      what divides the sum of weighted values (sum, none, l2, gate); default sum
        power                     power of the weights; default 1
        series                    all powers up to it, over n!; default false
        conv                      kernel of the short convolution on q, k, v; 0: none; default 0
        eps                       the sum is at least this; default 1e-06
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        groups: int = 0,
        key: int = 0,
        bias: bool = False,
        causal: bool = True,
        feature: Literal["identity", "elu1", "relu", "relu2", "cosine", "exp", "favor", "fourier", "hedgehog"] = "elu1",
        feature_dim: int = 64,
        norm: Literal["sum", "none", "l2", "gate"] = "sum",
        power: int = 1,
        series: bool = False,
        conv: int = 0,
        eps: float = 1e-06,
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class RetNet(Mixer):
    """The mixer `retnet` (arXiv:2307.08621), (B,T,D) -> (B,T,D).

        S_t = a S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = 1 - 2^{-5-h}

        heads                     heads H; default 4
        expand_k                  width of all keys over D; default 1.0
        expand_v                  width of all values over D; default 2.0
        norm                      per head, before the gate (layer, rms); default layer
        position_kind             how q and k are rotated (none, rope, selective_rope); default rope
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 1.0,
        expand_v: float = 2.0,
        norm: Literal["layer", "rms"] = "layer",
        position_kind: Literal["none", "rope", "selective_rope"] = "rope",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class GLA(Mixer):
    """The mixer `gla` (arXiv:2312.06635), (B,T,D) -> (B,T,D).

        S_t = diag(a_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t/sqrt K, a = sigmoid(x W1 W2 + b)^{1/16}

        heads                     heads H; default 4
        expand_k                  width of all keys over D; default 0.5
        expand_v                  width of all values over D; default 1.0
        rank                      rank of the decay's projection; default 16
        temperature               the log of the forget gate is divided by this; default 16.0
        norm                      per head, before the gate (rms, layer, none); default rms
        gate                      the output is gated by SiLU(x Wr + br); default true
        conv                      kernel of the short convolution on q, k, v; 0: none; default 0
        tie_pair_decay            channels j and j + K/2 decay alike; default false
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        rank: int = 16,
        temperature: float = 16.0,
        norm: Literal["rms", "layer", "none"] = "rms",
        gate: bool = True,
        conv: int = 0,
        tie_pair_decay: bool = False,
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Mamba2(Mixer):
    """The mixer `mamba2` (arXiv:2405.21060), (B,T,D) -> (B,T,D).

        S_t = e^{-A dt_t} S_{t-1} + dt_t B_t^T x_t, y_t = C_t S_t + D x_t

        state      N: width of B and C; default 64
        expand     inner width over D; default 2
        head       P: width of a head; there are expand D / P; default 64
        groups     how many B and C; each serves heads / groups heads; default 1
        conv       kernel of the short convolution; 0: none; default 4
        skip       add D_h x; default true
        block      bare: the recurrence alone, of x itself (mamba2, bare); default mamba2
        step_low   smallest step size at the start; default 0.001
        step_high  largest step size at the start; default 0.1
    """

    def __init__(
        self,
        D: int,
        *,
        state: int = 64,
        expand: int = 2,
        head: int = 64,
        groups: int = 1,
        conv: int = 4,
        skip: bool = True,
        block: Literal["mamba2", "bare"] = "mamba2",
        step_low: float = 0.001,
        step_high: float = 0.1,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MLSTM(Mixer):
    """The mixer `mlstm` (arXiv:2405.04517), (B,T,D) -> (B,T,D).

        C_t = f_t C_{t-1} + e^{i_t} k_t^T v_t, h_t = q_t C_t / max(|q_t n_t|, 1)

        heads       heads H; default 4
        expand_k    width of all keys over D; default 0.5
        expand_v    width of all values over D; default 1.0
        input_gate  weight of a write (exponential, sigmoid); default exponential
        cap         gates are cap tanh(. / cap); default 15.0
        input_bias  bias of the input gate at the start; default -10.0
        layers      layers of the model, for the start of Wout; default 12
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        input_gate: Literal["exponential", "sigmoid"] = "exponential",
        cap: float = 15.0,
        input_bias: float = -10.0,
        layers: int = 12,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class DeltaNet(Mixer):
    """The mixer `deltanet` (arXiv:2406.06484), (B,T,D) -> (B,T,D).

        S_t = (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K

        heads                     heads H; default 4
        expand_k                  width of all keys over D; default 1.0
        expand_v                  width of all values over D; default 1.0
        conv                      kernel of the short convolution on q, k, v; 0: none; default 4
        negative                  beta up to 2: eigenvalues of the transition in [-1,1] instead of [0,1]; default false
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 1.0,
        expand_v: float = 1.0,
        conv: int = 4,
        negative: bool = False,
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class GatedDeltaNet(Mixer):
    """The mixer `gated_deltanet` (arXiv:2412.06464), (B,T,D) -> (B,T,D).

        S_t = a_t (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K

        heads                     heads of q and k; default 4
        value_heads               heads of v; 0: as many as heads; default 0
        expand_k                  width of all keys over D; default 1.0
        expand_v                  width of all values over D; default 2.0
        conv                      kernel of the short convolution on q, k, v; 0: none; default 4
        negative                  beta up to 2: eigenvalues of the transition in [-1,1] instead of [0,1]; default false
        norm_eps                  eps of the norm per head; default 1e-05
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        value_heads: int = 0,
        expand_k: float = 1.0,
        expand_v: float = 2.0,
        conv: int = 4,
        negative: bool = False,
        norm_eps: float = 1e-05,
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class KDA(Mixer):
    """The mixer `kda` (arXiv:2510.26692), (B,T,D) -> (B,T,D).

        S_t = (I - b_t k_t^T k_t) diag(a_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t/sqrt K

        heads                     heads H; default 4
        expand_k                  width of all keys over D; default 1.0
        expand_v                  width of all values over D; default 1.0
        rank                      rank of the decay's and of the gate's projection; 0: width of a value V; default 0
        conv                      kernel of the short convolution on q, k, v; 0: none; default 4
        negative                  beta up to 2: eigenvalues of the transition in [-1,1] instead of [0,1]; default false
        norm_eps                  eps of the norm per head; default 1e-05
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 1.0,
        expand_v: float = 1.0,
        rank: int = 0,
        conv: int = 4,
        negative: bool = False,
        norm_eps: float = 1e-05,
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MetaLA(Mixer):
    """The mixer `metala` (arXiv:2411.10741), (B,T,D) -> (B,T,D).

        S_t = diag(a_t) S_{t-1} + (1 - a_t)^T v_t, o_t = q_t S_t/sqrt K + sigmoid(w_t v_t)

        heads        heads H; default 4
        expand_k     width of all queries over D; default 0.5
        expand_v     width of all values over D; default 1.0
        temperature  the log of the decay is divided by this; default 16.0
        conv         kernel of the short convolution on x; 0: none; default 4
        augment      self-augmentation with the current token; default true
        key          1 - decay, or a projection of its own (decay, own); default decay
        norm         per head, before the gate (layer, rms); default layer
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        temperature: float = 16.0,
        conv: int = 4,
        augment: bool = True,
        key: Literal["decay", "own"] = "decay",
        norm: Literal["layer", "rms"] = "layer",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LUNA(Mixer):
    """The mixer `luna` (arXiv:2512.08061), (B,T,D) -> (B,T,D).

        o_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s), phi learned

        heads                     heads H; default 4
        causal                    a token reads the past and itself; false: both directions; default true
        norm                      divide by the sum of the weights, or not (sum, none); default sum
        eps                       the sum is at least this; default 1e-06
        map_projections           M; default 16
        map_channels              R: functions per projection; there are M R features; default 4
        map_hidden                E: hidden width of a function; default 64
        map_shared                one network with R outputs instead of R networks; default false
        map_nonnegative           relu at the end; default true
        map_envelope              factor on all features (none, gauss); default none
        position_kind             how q and k are rotated (none, rope, selective_rope); default none
        position_base             base of rope's frequencies; the selective paper: 500000; default 10000.0
        position_rank             selective: rank of the angles' projection; 0: full, weight-normalised; default 0
        position_increment        selective: convolution or difference (conv, skip); default conv
        position_activation       selective: after the convolution (none, silu); default silu
        position_bias             selective: add exp(beta), beta = 0 at first: starts as rope; default false
        position_gate             selective: factor on the angles (none, head, angle); default head
        position_temperature      selective: spectrum of the angles (rope, rfa); default rope
        position_theta            selective: rfa's spectrum ends at tan(theta pi/2); below 1; default 0.9999
        position_temperature_max  selective: the largest temperature; default 1.0
        position_scaling          rope: frequencies for longer texts (none, linear, llama3); default none
        position_scaling_factor   scaling: divides the frequencies, at least 1; default 8.0
        position_scaling_low      llama3: fewer turns in the original length are divided; default 1.0
        position_scaling_high     llama3: more turns in the original length are kept; default 4.0
        position_scaling_length   llama3: the original length; default 8192
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        causal: bool = True,
        norm: Literal["sum", "none"] = "sum",
        eps: float = 1e-06,
        map_projections: int = 16,
        map_channels: int = 4,
        map_hidden: int = 64,
        map_shared: bool = False,
        map_nonnegative: bool = True,
        map_envelope: Literal["none", "gauss"] = "none",
        position_kind: Literal["none", "rope", "selective_rope"] = "none",
        position_base: float = 10000.0,
        position_rank: int = 0,
        position_increment: Literal["conv", "skip"] = "conv",
        position_activation: Literal["none", "silu"] = "silu",
        position_bias: bool = False,
        position_gate: Literal["none", "head", "angle"] = "head",
        position_temperature: Literal["rope", "rfa"] = "rope",
        position_theta: float = 0.9999,
        position_temperature_max: float = 1.0,
        position_scaling: Literal["none", "linear", "llama3"] = "none",
        position_scaling_factor: float = 8.0,
        position_scaling_low: float = 1.0,
        position_scaling_high: float = 4.0,
        position_scaling_length: int = 8192,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class NormAttention(Mixer):
    """The mixer `norm_attention` (arXiv:2405.15731), (B,T,D) -> (B,T,D).

        S_t = S_{t-1} + k_t^T v_t, o_t = q_t S_t / eta(x_t)

        heads       heads H; default 1
        causal      a token reads the past and itself; false: both directions; default true
        key         key dim K of a head; 0: D / H; default 0
        normaliser  what o is divided by (exp, softplus, sigmoid, exp_exp, exp_elu, exp_softplus, exp_sigmoid); default exp
        offset      added to nu (none, linear); default none
        feature     map of q and k (identity, elu1); default identity
        scale_keys  k / sqrt(K); default false
        conv        kernel of the short convolution on v, q, k; 0: none; default 0
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 1,
        causal: bool = True,
        key: int = 0,
        normaliser: Literal["exp", "softplus", "sigmoid", "exp_exp", "exp_elu", "exp_softplus", "exp_sigmoid"] = "exp",
        offset: Literal["none", "linear"] = "none",
        feature: Literal["identity", "elu1"] = "identity",
        scale_keys: bool = False,
        conv: int = 0,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class S6(Mixer):
    """The mixer `s6` (arXiv:2312.00752), (B,T,D) -> (B,T,D).

        h_t = e^{-A dt_t} h_{t-1} + dt_t u_t B_t, y_t = C_t h_t + D u_t

        state   N: numbers per channel; default 16
        expand  inner width E over D; default 2
        rank    R of the step size's projection; 0: D / 16 rounded up; default 0
        conv    kernel of the short convolution; 0: none; default 4
        block   mamba: conv, SiLU and gate; bare: none of them; ssd: bare, one A and d (mamba, bare, ssd); default mamba
    """

    def __init__(
        self,
        D: int,
        *,
        state: int = 16,
        expand: int = 2,
        rank: int = 0,
        conv: int = 4,
        block: Literal["mamba", "bare", "ssd"] = "mamba",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class RGLRU(Mixer):
    """The mixer `rg_lru` (arXiv:2402.19427), (B,T,D) -> (B,T,D).

        h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t, a = e^{-c r_t softplus(L)}

        heads   blocks of the gates' projections; default 4
        expand  width of the recurrence over D; default 1.0
        conv    kernel of the short convolution; 0: none; default 4
        power   c in a = e^{-c r softplus(Lambda)}; default 8.0
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        expand: float = 1.0,
        conv: int = 4,
        power: float = 8.0,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class QLSTM(Mixer):
    """The mixer `qlstm` (arXiv:2405.15731), (B,T,D) -> (B,T,D).

        h_t = sigmoid(f_t) h_{t-1} + sigmoid(i_t) u_t, o_t = sigmoid(o_t) h_t

        transition  the forget gate (plain, reversed); default plain
        block       around the cell (full, plain); default full
        expand      width of the full block over D; default 2
        conv        kernel of the full block's short convolution; 0: none; default 4
    """

    def __init__(
        self,
        D: int,
        *,
        transition: Literal["plain", "reversed"] = "plain",
        block: Literal["full", "plain"] = "full",
        expand: int = 2,
        conv: int = 4,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class TwoMamba(Mixer):
    """The mixer `two_mamba` (arXiv:2602.17363), (B,T,D) -> (B,T,D).

        o_t = sum_s d_ts (q_t.k_s)^2 v_s / sum_s d_ts (q_t.k_s)^2, d_ts the decay since s

        heads            heads H; default 4
        kernel           2Mamba, 2Mamba-E, Mamba-2S (square, exp, linear); default square
        conv             kernel of the short convolution on q, k, v; 0: none; default 2
        conv_activation  after the convolution; silu_qk: of q and k only (none, silu, silu_qk); default none
        conv_bias        the convolution has a bias; default true
        decay            the past decays; default true
        step             of kernel = linear: v is scaled by softplus(x W_dt); default true
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        kernel: Literal["square", "exp", "linear"] = "square",
        conv: int = 2,
        conv_activation: Literal["none", "silu", "silu_qk"] = "none",
        conv_bias: bool = True,
        decay: bool = True,
        step: bool = True,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class InlineAttention(Mixer):
    """The mixer `inline` (arXiv:2412.06590), (B,T,D) -> (B,T,D).

        o_t = sum_s w_ts v_s, w_ts = q_t.k_s - mean_s(q_t.k_s) + 1/t

        heads     heads H; default 4
        causal    a token reads the past and itself; false: both directions; default true
        feature   phi (identity, relu, leaky_relu, exp); default identity
        residual  taps of the local residual; 0: none; default 3
        columns   of the image that the tokens are: the residual is a square; 0: none; default 0
    """

    def __init__(
        self,
        D: int,
        *,
        heads: int = 4,
        causal: bool = True,
        feature: Literal["identity", "relu", "leaky_relu", "exp"] = "identity",
        residual: int = 3,
        columns: int = 0,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Conv(Mixer):
    """The mixer `conv` (arXiv:2312.04927), (B,T,D) -> (B,T,D).

        y_t = (x_t W + b1) * (h_0 x_t + h_1 x_{t-1} + h_2 x_{t-2} + b2) + x_t

        kind      gated per channel, or over all channels (gated, dense); default gated
        kernel    tokens that are read, the current one included; default 3
        residual  gated: adds the input to the output; default true
    """

    def __init__(
        self,
        D: int,
        *,
        kind: Literal["gated", "dense"] = "gated",
        kernel: int = 3,
        residual: bool = True,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Model(_Model):
    """A model of mixers: Model(pattern=["gla:heads=4"], layers=4, D=256, vocabulary=32000).

        logits = model(tokens)               (B,T) -> (B,T,vocabulary), as the head says
        logits, state = model(tokens, [])    the same, and the state after the last token
        logits, state = model(more, state)   the tokens after those
        loss = model.loss(tokens, targets)   mean cross entropy, without ever holding all logits

        A state is one list of tensors per layer; row b of every tensor belongs to row b of the batch.
    
        pattern         mixers, repeated down the layers: mixer or mixer:settings; default [softmax]
        layers          layers L; default 2
        D               model dim; default 64
        vocabulary      tokens that the embedding knows; default 256
        features        numbers per position instead of tokens; 0: tokens; default 0
        classes         0: an output per position; else a classifier of whole sequences; default 0
        output          per position: the next token, a number, the whole sequence from its last position, or x (tokens, number, rebuild, hidden); default tokens
        pool            what a classifier reads of the positions (mean, last); default mean
        mlp             after each mixer (swiglu, gelu, gelu_tanh, none); default swiglu
        mlp_dim         its inner width; 0: 8 D / 3 rounded up to 64, gelu: 4 D; default 0
        mlp_bias        its matrices have biases; default false
        norm            before each mixer and mlp, and at the end (rms, layer); default rms
        norm_eps        epsilon of these norms; default 1e-05
        norm_bias       norm = layer adds a bias; default false
        norm_place      after: of x + mixer(x) and x + mlp(x), and none at the end (before, after); default before
        embedding_norm  a norm of the embedding; default false
        init            gpt2: what writes into x starts 1/sqrt(2 L) as large; torch: as torch.nn's layers do; torch_linear: so do matrices, the embedding N(0, 0.02); xlstm: as xlstm-jax (normal, gpt2, torch, torch_linear, xlstm); default normal
        tied            the head is the embedding; default false
        logit_cap       logits are cap tanh(. / cap); 0: as they are; default 0.0
        positions       learned absolute positions up to this length; 0: none; default 0
        segments        learned vectors of a text's segments, added to the embedding; 0: none; default 0
        dropout         share of values that training drops; default 0.0
        dropout_at      all: embedding, mixers and mlps (all, embedding); default all
    """

    def __init__(
        self,
        *,
        pattern: Sequence[str] = ("softmax",),
        layers: int = 2,
        D: int = 64,
        vocabulary: int = 256,
        features: int = 0,
        classes: int = 0,
        output: Literal["tokens", "number", "rebuild", "hidden"] = "tokens",
        pool: Literal["mean", "last"] = "mean",
        mlp: Literal["swiglu", "gelu", "gelu_tanh", "none"] = "swiglu",
        mlp_dim: int = 0,
        mlp_bias: bool = False,
        norm: Literal["rms", "layer"] = "rms",
        norm_eps: float = 1e-05,
        norm_bias: bool = False,
        norm_place: Literal["before", "after"] = "before",
        embedding_norm: bool = False,
        init: Literal["normal", "gpt2", "torch", "torch_linear", "xlstm"] = "normal",
        tied: bool = False,
        logit_cap: float = 0.0,
        positions: int = 0,
        segments: int = 0,
        dropout: float = 0.0,
        dropout_at: Literal["all", "embedding"] = "all",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
