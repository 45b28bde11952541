// A text in windows: each token but the first is scored once, from at most `context` tokens before it.
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "io/compressed.h"
#include "lab/score/parts.h"

namespace horner {
namespace {

std::vector<int64_t> tokens_of(const Asked& asked, const std::string& path) {
  std::vector<int64_t> tokens;
  if (asked.prefix()) tokens.push_back(*asked.prefix());
  const std::vector<int32_t> ids =
      asked.tokenizer.encode(read_decompressed(path), {.control = false});
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  if (tokens.size() < 2) throw DataError("{}: has no text to score", path);
  return tokens;
}

// Window k reads tokens k stride .. k stride + context; it scores those that no window before it has scored.
std::vector<Sequence> windows_of(
    const std::vector<int64_t>& tokens, int64_t context, int64_t stride
) {
  std::vector<Sequence> windows;
  const int64_t n = int64_t(tokens.size());
  for (int64_t begin = 0, scored = 1; scored < n; begin += stride) {
    const int64_t end = std::min(begin + context + 1, n);
    windows.push_back({{tokens.begin() + begin, tokens.begin() + end}, scored - begin});
    scored = end;
  }
  return windows;
}

// Ranges of positions 1, 2, 4, .. that double in length.
std::vector<PositionScore> by_position(
    const std::vector<Sequence>& windows, const std::vector<SequenceScores>& scores
) {
  std::vector<PositionScore> list;
  for (size_t w = 0; w < windows.size(); ++w) {
    for (size_t i = 0; i < scores[w].model.nats.size(); ++i) {
      const size_t position = size_t(windows[w].first) + i;
      const size_t range = size_t(std::log2(double(position)));
      for (size_t r = list.size(); r <= range; ++r)
        list.push_back({int64_t{1} << r, int64_t{2} << r, 0, 0, 0});
      ++list[range].tokens;
      list[range].nats += scores[w].model.nats[i];
      if (!scores[w].kl.empty()) list[range].kl += scores[w].kl[i];
    }
  }
  for (PositionScore& p : list) {
    p.nats /= double(p.tokens);
    p.kl /= double(p.tokens);
  }
  return list;
}

double share(const std::vector<bool>& list) {
  return double(std::accumulate(list.begin(), list.end(), int64_t{0})) / double(list.size());
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// The mean over tokens, with Student's interval of the means of windows.
Interval over_windows(const std::vector<double>& tokens, const std::vector<double>& windows) {
  Interval interval = t_interval(windows);
  interval.mean = mean(tokens);
  return interval;
}

}  // namespace

double TextScore::perplexity() const { return std::exp(nats.mean); }

TextScore score_text(const Asked& asked, const std::string& path, const TellScore& tell) {
  return score_tokens(asked, tokens_of(asked, path), path, tell);
}

TextScore score_tokens(
    const Asked& asked,
    const std::vector<int64_t>& tokens,
    const std::string& path,
    const TellScore& tell
) {
  const int64_t stride = asked.options.stride > 0 ? asked.options.stride : asked.context;
  std::vector<Sequence> windows = windows_of(tokens, asked.context, stride);
  windows.resize(asked.limited(windows.size()));
  const std::vector<SequenceScores> scores = asked.scores(windows, path, tell);

  TextScore result;
  result.file = path;
  result.windows = int64_t(windows.size());
  std::vector<double> nats, window_nats, other, differences, kl, window_kl;
  std::vector<bool> top, same;
  for (size_t w = 0; w < windows.size(); ++w) {
    const SequenceScores& s = scores[w];
    append(nats, s.model.nats);
    append(top, s.model.top);
    append(other, s.against.nats);
    append(kl, s.kl);
    append(same, s.same_top);
    window_nats.push_back(mean(s.model.nats));
    differences.push_back(mean(s.model.nats) - mean(s.against.nats));
    window_kl.push_back(mean(s.kl));
    for (size_t t = size_t(windows[w].first); t < windows[w].tokens.size(); ++t)
      result.bytes += int64_t(asked.tokenizer.bytes(int32_t(windows[w].tokens[t])).size());
  }
  result.tokens = int64_t(nats.size());
  result.nats = over_windows(nats, window_nats);
  result.bits_per_byte =
      result.nats.mean * double(result.tokens) / (std::log(2.0) * double(result.bytes));
  result.top = share(top);
  result.by_position = by_position(windows, scores);
  if (asked.against != nullptr) {
    TextAgainst& a = result.against.emplace();
    a.nats = mean(other);
    a.same_top = share(same);
    a.difference = t_interval(differences);
    a.difference.mean = result.nats.mean - a.nats;
    a.kl = over_windows(kl, window_kl);
  }
  return result;
}

}  // namespace horner
