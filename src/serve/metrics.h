// Numbers about a server, as Prometheus reads them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace horner {

// Times in buckets: how many were at most so many seconds.
class Histogram {
 public:
  static constexpr std::array<double, 12> kBounds = {
      0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
  void add(double seconds);
  void write(std::string& page, const std::string& name, const std::string& help) const;

 private:
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

class ServeMetrics {
 public:
  void first_token(double seconds);
  void next_token(double seconds);
  void prompt_read(int64_t tokens, int64_t cached);
  void answered(int status);
  // Of the worker, after each round.
  struct Now {
    int64_t streams = 0, queued = 0, state_bytes = 0, cache_bytes = 0, cache_states = 0;
    int64_t named_states = 0;
  };
  void now(const Now& now);
  Now now() const;
  double tokens_per_second() const;  // written in the last 10 seconds

  std::string page() const;

 private:
  mutable std::mutex mutex_;
  Now now_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, text_tokens_ = 0, hits_ = 0, misses_ = 0;
  std::map<int, int64_t> answers_;
  Histogram first_, between_;
  std::array<int64_t, 10> written_{};  // tokens of each of the last seconds
  int64_t second_ = 0;                 // of written_'s newest
  void advance();
};

}  // namespace horner
