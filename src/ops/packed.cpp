#include "ops/packed.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kMostPadding = 4;  // at most this many padded tokens per token

}  // namespace

Span longest_sequence(const std::vector<int64_t>& starts) {
  Span longest{0, 0};
  for (size_t j = 0; j + 1 < starts.size(); ++j) {
    const int64_t length = starts[j + 1] - starts[j];
    if (length > longest.length) longest = {starts[j], length};
  }
  return longest;
}

std::vector<int64_t> sequence_starts(const Op& op, const Inputs& in) {
  const at::Tensor starts = in.cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* first = starts.data_ptr<int64_t>();
  const std::vector<int64_t> list(first, first + starts.numel());
  HORNER_CHECK(
      list.front() == 0 && list.back() == in.v.size(1) && std::is_sorted(list.begin(), list.end()),
      "[{}] cu_seqlens must rise from 0 to T = {}, got {} .. {}",
      op.name,
      in.v.size(1),
      list.front(),
      list.back()
  );
  return list;
}

Result run_each(
    const Op& op, const RunForm& form, const Inputs& in, const State& state, const Options& options
) {
  const std::vector<int64_t> starts = sequence_starts(op, in);
  std::vector<at::Tensor> o, norm;
  std::vector<State> states;
  for (size_t j = 0; j + 1 < starts.size(); ++j) {
    const int64_t length = starts[j + 1] - starts[j];
    const State own = row_of(state, int64_t(j));
    if (length == 0) {  // an empty sequence leaves its state as it is
      states.push_back(own.empty() ? op.zero_state(in, 0, options) : own);
      continue;
    }
    const Result result = form(tokens(op, in, starts[j], length), own, options);
    o.push_back(result.o);
    norm.push_back(result.norm);
    states.push_back(result.state);
  }
  Result all{at::cat(o, 1), {}, {}, {}};
  if (options.log_norm) all.norm = at::cat(norm, 1);
  if (options.final_state) all.state = stack_rows(states);
  return all;
}

Result run_padded(
    const Op& op, const RunForm& form, const Inputs& in, const State& state, const Options& options
) {
  const std::vector<int64_t> starts = sequence_starts(op, in);
  const int64_t n = int64_t(starts.size()) - 1, T = longest_sequence(starts).length;
  std::vector<int64_t> places, lengths;  // of each token in the (n,T) batch; of each sequence
  for (int64_t j = 0; j < n; ++j) {
    lengths.push_back(starts[size_t(j) + 1] - starts[size_t(j)]);
    for (int64_t t = 0; t < lengths.back(); ++t) places.push_back(j * T + t);
  }
  const at::Tensor place = at::tensor(places, at::kLong).to(in.v.device());
  const auto in_batch = [&](const at::Tensor& x) {  // (1,tokens,..) -> (n,T,..)
    std::vector<int64_t> rows = x.sizes().vec(), batch = rows;
    rows.erase(rows.begin());
    rows[0] = n * T;
    batch[0] = n;
    batch[1] = T;
    return at::zeros(rows, x.options()).index_copy(0, place, x.squeeze(0)).view(batch);
  };
  const auto in_line = [&](const at::Tensor& y) {  // and back
    return y.flatten(0, 1).index_select(0, place).unsqueeze(0);
  };
  Inputs padded;
  for (const Input& input : op.inputs) {
    const at::Tensor& x = in.*input.tensor;
    if (x.defined()) padded.*input.tensor = in_batch(x);
  }
  padded.lengths = at::tensor(lengths, at::kLong).to(in.v.device());
  Result all = form(padded, state, options);
  all.o = in_line(all.o);
  if (options.log_norm) all.norm = in_line(all.norm);
  return all;
}

Result run_packed(
    const Op& op, const RunForm& form, const Inputs& in, const State& state, const Options& options
) {
  Inputs here = in;
  here.cu_seqlens = in.cu_seqlens.to(at::kCPU);  // waits for the GPU once, not at each read
  const auto pads = [&] {
    if (!in.v.is_cuda() || op.pads == nullptr || !op.pads(in, state, options)) return false;
    const std::vector<int64_t> starts = sequence_starts(op, here);
    const int64_t padded = (int64_t(starts.size()) - 1) * longest_sequence(starts).length;
    return padded <= kMostPadding * starts.back();
  };
  return (pads() ? run_padded : run_each)(op, form, here, state, options);
}

}  // namespace horner
