#include "engine/cpu/hybrid_layer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

#include "core/check.h"

namespace horner {
namespace {

int64_t in_16s(int64_t n) { return (n + 15) / 16 * 16; }

std::vector<float> numbers(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<float>(), y.const_data_ptr<float>() + y.numel()};
}

// Rows (heads,n,K) as (heads,n/16,K,16), zeros behind the last row.
at::Tensor grouped(const at::Tensor& w) {
  const int64_t n = w.size(1);
  return at::constant_pad_nd(w, {0, 0, 0, in_16s(n) - n})
      .unflatten(1, {-1, 16})
      .transpose(2, 3)
      .contiguous();
}

int64_t series_order(const HybridOptions& o) { return o.order.value_or(o.far == "taylor" ? 2 : 0); }

}  // namespace

std::string HybridLayer::refuses(const HybridOptions& o) {
  if (o.position.kind == "selective_rope") return "position.kind = selective_rope";
  if (o.far == "linear" && o.feature == "luna") return "hybrid with feature = luna";
  const int64_t most = o.far == "taylor" ? 2 : 0;
  if ((o.far == "taylor" || o.far == "centres") && series_order(o) > most)
    return fmt::format("hybrid with far = {} of order {}", o.far, series_order(o));
  return "";
}

HybridLayer::HybridLayer(
    const HybridOptions& o, int64_t K, int64_t V, const Find& find, HugeArena& arena
)
    : o_(o),
      G_(o.groups > 0 ? o.groups : o.heads),
      r_(o.heads / G_),
      K_(K),
      V_(V),
      padded_V_(in_16s(V)),
      first_(size_t(r_), 0),
      last_(size_t(r_), std::numeric_limits<int64_t>::max() / 2) {
  F_ = features(), padded_F_ = in_16s(F_);
  const int64_t slots = o.sinks + o.window;
  pages_ = (slots + kPage - 1) / kPage;
  page_slots_ = pages_ > 1 ? kPage : (slots + 63) / 64 * 64;  // attention reads 64 keys at a time
  if (F_ == 0) return;
  ones_.assign(size_t(F_), 1.f);
  reads_left() ? read_shared(find, arena) : read_added(find);
}

int64_t HybridLayer::features() const {
  if (o_.far == "none") return 0;
  if (o_.far == "centres") return o_.count;
  if (o_.far == "taylor") return series_order(o_) == 0 ? 1 : (K_ + 1) * (K_ + 2) / 2;
  return o_.far == "linear" && o_.feature == "hedgehog" ? 2 * K_ : K_;
}

void HybridLayer::read_shared(const Find& find, HugeArena& arena) {
  far_bias_ = numbers(find("far_bias"));
  if (o_.far == "centres") {
    const at::Tensor mu = find("centres");  // (G,C,K)
    const at::Tensor rows = grouped(mu);
    centres_ = arena.take(size_t(rows.nbytes()));
    std::copy_n(
        rows.const_data_ptr<float>(), rows.numel(), reinterpret_cast<float*>(centres_.get())
    );
    half_squares_ = numbers(at::constant_pad_nd(
        mu.square().sum(-1) / 2, {0, padded_F_ - F_}, std::numeric_limits<double>::infinity()
    ));
  } else if (o_.far == "taylor") {
    centre_ = numbers(find("centre"));
    // p(q.k) = 1 + q.k + (q.k)^2/2: the monomials of q by these weights, times those of k.
    const std::vector<float> ones(size_t(K_), 1.f);
    term_weights_.assign(size_t(padded_F_), 0.f);
    monomials(ones.data(), nullptr, term_weights_.data());
    for (int64_t i = 0, at = 1 + K_; at < F_; at += K_ - i, ++i) term_weights_[size_t(at)] = 0.5f;
  } else if (o_.feature == "hedgehog") {
    for_q_ = numbers(grouped(find("feature_q").transpose(1, 2)));
    for_k_ = numbers(grouped(find("feature_k").transpose(1, 2)));
  }
}

void HybridLayer::read_added(const Find& find) {
  const std::string second = is_delta() ? "beta" : o_.far == "mlstm" ? "input_gate" : "";
  std::vector<at::Tensor> weights = {find("mass_weight")}, biases = {find("mass_bias")};
  if (!second.empty())
    weights.push_back(find(second + "_weight")), biases.push_back(find(second + "_bias"));
  const at::Tensor decay = find("decay_weight"), bias = find("decay_bias");
  if (decays_per_key()) {
    weights.push_back(find("decay_down_weight"));
    biases.push_back(at::zeros({o_.rank}));
    decay_ = numbers(grouped(decay.view({G_, K_, o_.rank})));
    decay_bias_ = numbers(at::constant_pad_nd(bias.view({G_, K_}), {0, in_16s(K_) - K_}));
  } else {
    weights.push_back(decay), biases.push_back(bias);
  }
  gate_weight_ = at::cat(weights), gate_bias_ = numbers(at::cat(biases));
  far_scale_ = numbers(find("far_scale"));
  far_mean_ = numbers(at::constant_pad_nd(find("far_mean"), {0, padded_V_ - V_}));
}

int64_t HybridLayer::place(int64_t begin, bool wide) {
  const auto whole = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  begin_ = begin, wide_ = wide;
  near_bytes_ = whole(pages_ * page_slots_ * (K_ + padded_V_) * (wide ? 4 : 2));
  const int64_t far = F_ > 0 ? F_ * padded_V_ + padded_F_ + 16 : 0;
  head_bytes_ = near_bytes_ + whole(far * 4);
  return begin_ + G_ * head_bytes_;
}

int64_t HybridLayer::read_bytes(int64_t length) const {
  const int64_t tokens = std::min(length, o_.window + o_.sinks);
  return G_ * (tokens * (K_ + V_) * (wide_ ? 4 : 2) + (F_ > 0 ? F_ * (V_ + 1) * 4 : 0));
}

int64_t HybridLayer::parameter_bytes() const {
  const size_t lists = half_squares_.size() + for_q_.size() + for_k_.size() + decay_.size();
  return int64_t(lists) * 4 + (centres_ ? G_ * padded_F_ * K_ * 4 : 0);
}

int64_t HybridLayer::scratch() const {
  return 4 * (r_ + 1) * (in_16s(K_) + padded_V_ + padded_F_ + 16);
}

}  // namespace horner
