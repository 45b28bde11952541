#include "lab/score/sequences.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace horner {
namespace {

constexpr int64_t kRows = 512;  // positions whose logits are held at a time

using Batch = std::vector<size_t>;  // indices of sequences

int64_t read_length(const Sequence& s) { return int64_t(s.tokens.size()) - 1; }  // without the last

// Long sequences first, so that the first batch shows whether memory suffices.
std::vector<Batch> batches_of(const std::vector<Sequence>& sequences, int64_t batch_tokens) {
  Batch order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sequences[a].tokens.size() > sequences[b].tokens.size();
  });
  std::vector<Batch> batches;
  for (const size_t i : order) {
    const bool full = batches.empty() || int64_t(batches.back().size() + 1) *
                                                 read_length(sequences[batches.back().front()]) >
                                             batch_tokens;
    if (full) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

struct Prepared {
  at::Tensor input;    // (B,T)
  at::Tensor rows;     // (n): positions in (B T) that predict a scored token
  at::Tensor targets;  // (n)
};

Prepared prepare(const std::vector<Sequence>& sequences, const Batch& batch, at::Device device) {
  const int64_t B = int64_t(batch.size()), T = read_length(sequences[batch.front()]);
  std::vector<int64_t> input(size_t(B * T), 0), rows, targets;
  for (int64_t b = 0; b < B; ++b) {
    const Sequence& s = sequences[batch[size_t(b)]];
    std::copy(s.tokens.begin(), s.tokens.end() - 1, input.begin() + b * T);
    for (int64_t t = s.first; t < int64_t(s.tokens.size()); ++t) {
      rows.push_back(b * T + t - 1);
      targets.push_back(s.tokens[size_t(t)]);
    }
  }
  return {
      at::tensor(input, at::kLong).view({B, T}).to(device),
      at::tensor(rows, at::kLong).to(device),
      at::tensor(targets, at::kLong).to(device)};
}

// What the head reads at the positions that predict a scored token.   (n,D)
at::Tensor hidden_rows(Model& model, const Prepared& p) {
  ModelState state;
  Context context;
  context.keep_state = false;
  return model.hidden(p.input, state, context).flatten(0, 1).index_select(0, p.rows);
}

at::Tensor log_probabilities(const Model& model, const at::Tensor& hidden) {
  return at::log_softmax(model.logits(hidden).to(at::kFloat), -1);  // (n,vocabulary)
}

// Scores of all positions of a batch, one after the other.
struct Columns {
  std::vector<double> nats, kl;
  std::vector<bool> top, same;

  void add(const at::Tensor& log_p, const at::Tensor& targets) {
    const at::Tensor p = -log_p.gather(1, targets.unsqueeze(1)).squeeze(1);
    if (at::isnan(p).any().item<bool>())  // an answer would be chosen all the same
      throw RunError("[score] a model's log-probability of a token is not a number");
    append(nats, p);
    append(top, log_p.argmax(1) == targets);
  }
  void compare(const at::Tensor& log_p, const at::Tensor& log_other) {
    append(kl, (log_other.exp() * (log_other - log_p)).sum(1));  // sum p' (log p' - log p)
    append(same, log_p.argmax(1) == log_other.argmax(1));
  }

 private:
  template <class T>
  static void append(std::vector<T>& list, const at::Tensor& x) {
    const at::Tensor values = x.to(at::kCPU, at::kDouble).contiguous();
    const double* begin = values.data_ptr<double>();
    for (int64_t i = 0; i < values.numel(); ++i) list.push_back(T(begin[i]));
  }
};

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t begin, int64_t count) {
  if (all.empty()) return {};
  return {all.begin() + begin, all.begin() + begin + count};
}

}  // namespace

double TokenScores::sum() const { return std::accumulate(nats.begin(), nats.end(), 0.0); }

bool TokenScores::all_top() const {
  return std::all_of(top.begin(), top.end(), [](bool x) { return x; });
}

std::vector<SequenceScores> score_sequences(
    Model& model,
    Model* against,
    const std::vector<Sequence>& sequences,
    int64_t batch_tokens,
    at::Device device,
    const TellScored& tell
) {
  const c10::NoGradGuard no_graph;
  size_t done = 0, total = 0;
  for (const Sequence& s : sequences) {
    HORNER_CHECK(
        s.first >= 1 && s.scored() >= 1, "[score] a sequence needs a token to read and one to score"
    );
    total += s.tokens.size();
  }
  std::vector<SequenceScores> result(sequences.size());
  for (const Batch& batch : batches_of(sequences, batch_tokens)) {
    if (tell) tell(done, total);
    const Prepared p = prepare(sequences, batch, device);
    const at::Tensor rows = hidden_rows(model, p);
    const at::Tensor other_rows = against != nullptr ? hidden_rows(*against, p) : at::Tensor();
    Columns own, other;
    for (int64_t begin = 0; begin < rows.size(0); begin += kRows) {
      const int64_t n = std::min(kRows, rows.size(0) - begin);
      const at::Tensor targets = p.targets.narrow(0, begin, n);
      const at::Tensor log_p = log_probabilities(model, rows.narrow(0, begin, n));
      own.add(log_p, targets);
      if (against == nullptr) continue;
      const at::Tensor log_other = log_probabilities(*against, other_rows.narrow(0, begin, n));
      other.add(log_other, targets);
      own.compare(log_p, log_other);
    }
    int64_t begin = 0;
    for (const size_t i : batch) {
      const int64_t n = sequences[i].scored();
      result[i] = {
          {part(own.nats, begin, n), part(own.top, begin, n)},
          {part(other.nats, begin, n), part(other.top, begin, n)},
          part(own.kl, begin, n),
          part(own.same, begin, n)};
      begin += n;
      done += sequences[i].tokens.size();
    }
  }
  return result;
}

}  // namespace horner
