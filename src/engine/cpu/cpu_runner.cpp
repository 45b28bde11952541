#include "engine/cpu/cpu_runner.h"

#include <ATen/Functions.h>

#include <cstring>
#include <numeric>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kPiece = 512;  // tokens whose logits are computed at a time

struct PagedState : StreamState {
  Pages pages;
};
Pages& pages_of(StreamState& state) { return static_cast<PagedState&>(state).pages; }
const Pages& pages_of(const StreamState& state) {
  return static_cast<const PagedState&>(state).pages;
}

class CpuRunner : public Runner {
 public:
  CpuRunner(std::unique_ptr<CpuDecoder> decoder, int64_t longest)
      : decoder_(std::move(decoder)), longest_(longest) {}

  int64_t vocabulary() const override { return decoder_->vocabulary(); }
  int64_t longest() const override { return longest_; }
  std::string name() const override { return decoder_->name(); }
  int64_t weight_bytes() const override { return decoder_->weight_bytes(); }

  std::unique_ptr<StreamState> open() override { return std::make_unique<PagedState>(); }
  std::unique_ptr<StreamState> fork(const StreamState& state) override {
    auto copy = std::make_unique<PagedState>();
    copy->pages = pages_of(state);
    return copy;
  }

  int64_t bytes(const StreamState& state) const override {
    const CacheShape& shape = decoder_->shape();
    const Pages& stream = pages_of(state);
    return stream.length() * shape.token_bytes() +
           (stream.state() != nullptr ? shape.state_bytes : 0);
  }
  int64_t bytes_after(int64_t tokens) const override {
    const CacheShape& shape = decoder_->shape();
    return shape.state_bytes + (tokens + kPage - 1) / kPage * shape.page_bytes();
  }
  void for_memory(const StreamState& state, const Piece& piece) const override {
    const CacheShape& shape = decoder_->shape();
    const Pages& stream = pages_of(state);
    for (const auto& page : stream.pages()) piece(page.get(), shape.page_bytes());
    if (stream.state() != nullptr) piece(stream.state(), shape.state_bytes);
  }

  // pages (n, bytes of a page), of which the last one may have room, and the state of layers that have no pages.
  Tensors tensors(const StreamState& state) const override {
    const Pages& stream = pages_of(state);
    const CacheShape& shape = decoder_->shape();
    const int64_t bytes = shape.page_bytes();
    const int64_t n = bytes > 0 ? (stream.length() + kPage - 1) / kPage : 0;
    at::Tensor pages = at::empty({n, bytes}, at::kByte);
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(pages.data_ptr<uint8_t>() + i * bytes, stream.page(i), size_t(bytes));
    Tensors all = {{"length", at::tensor({stream.length()}, at::kLong)}};
    if (bytes > 0) all.emplace_back("pages", pages);
    if (stream.state() != nullptr)
      all.emplace_back(
          "state", at::from_blob(stream.state(), {shape.state_bytes}, at::kByte).clone()
      );
    return all;
  }

  std::unique_ptr<StreamState> restore(const Tensors& named) override {
    const int64_t bytes = decoder_->shape().page_bytes();
    at::Tensor length, pages = at::empty({0, bytes}, at::kByte), fixed = at::empty({0}, at::kByte);
    for (const auto& [name, tensor] : named)
      (name == "pages" ? pages : name == "state" ? fixed : length) = tensor;
    const int64_t tokens = length.defined() && length.numel() == 1 ? length.item<int64_t>() : -1;
    const int64_t n = bytes > 0 ? (tokens + kPage - 1) / kPage : 0;
    if (tokens < 0 || pages.scalar_type() != at::kByte || pages.dim() != 2 || pages.size(0) != n ||
        pages.size(1) != bytes)
      throw DataError("the state was not made by this model: its pages do not fit");
    const int64_t own = tokens > 0 ? decoder_->shape().state_bytes : 0;
    if (fixed.scalar_type() != at::kByte || fixed.numel() != own)
      throw DataError("the state was not made by this model: it has another size");
    auto state = std::make_unique<PagedState>();
    if (tokens == 0) return state;
    state->pages.reserve(decoder_->shape(), tokens);
    state->pages.advance(tokens);
    pages = pages.contiguous(), fixed = fixed.contiguous();
    if (own > 0) std::memcpy(state->pages.state(), fixed.data_ptr<uint8_t>(), size_t(own));
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(state->pages.page(i), pages.data_ptr<uint8_t>() + i * bytes, size_t(bytes));
    return state;
  }

  void read(StreamState& state, std::span<const int32_t> tokens, at::Tensor* logits) override {
    Pages& stream = pages_of(state);
    const auto n = int64_t(tokens.size());
    if (logits != nullptr) *logits = at::empty({n, vocabulary()});
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t count = std::min(kPiece, n - begin);
      rows_.clear(), wanted_.clear();
      for (int64_t i = 0; i < count; ++i) {
        rows_.push_back({&stream, tokens[size_t(begin + i)]});
        if (logits != nullptr) wanted_.push_back(i);
      }
      const std::span<const float> got = decoder_->forward(rows_, wanted_);
      if (logits != nullptr)
        std::copy(got.begin(), got.end(), logits->data_ptr<float>() + begin * vocabulary());
    }
  }

  at::Tensor step(std::span<StreamState* const> states, std::span<const int32_t> tokens) override {
    rows_.clear();
    for (size_t i = 0; i < states.size(); ++i) rows_.push_back({&pages_of(*states[i]), tokens[i]});
    wanted_.resize(states.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
    const std::span<const float> logits = decoder_->forward(rows_, wanted_);
    return at::from_blob(
        const_cast<float*>(logits.data()), {int64_t(states.size()), vocabulary()}, at::kFloat
    );
  }

 private:
  std::unique_ptr<CpuDecoder> decoder_;
  const int64_t longest_;
  std::vector<CpuDecoder::Row> rows_;
  std::vector<int64_t> wanted_;
};

}  // namespace

std::unique_ptr<Runner> cpu_runner(std::unique_ptr<CpuDecoder> decoder, int64_t longest) {
  return std::make_unique<CpuRunner>(std::move(decoder), longest);
}

}  // namespace horner
