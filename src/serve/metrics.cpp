#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace horner {
namespace {

int64_t this_second() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

void head(std::string& page, const std::string& name, const char* type, const std::string& help) {
  page += fmt::format("# HELP horner_{} {}\n# TYPE horner_{} {}\n", name, help, name, type);
}

void single(
    std::string& page, const std::string& name, const char* type, const char* help, double value
) {
  head(page, name, type, help);
  page += fmt::format("horner_{} {}\n", name, value);
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[size_t(bucket - kBounds.begin())];
  sum_ += seconds;
}

void Histogram::write(std::string& page, const std::string& name, const std::string& help) const {
  head(page, name, "histogram", help);
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    page += fmt::format("horner_{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  page += fmt::format("horner_{}_sum {}\nhorner_{}_count {}\n", name, sum_, name, total);
}

void ServeMetrics::advance() {
  const int64_t second = this_second();
  for (; second_ < second; ++second_) {
    if (second - second_ > int64_t(written_.size())) second_ = second - int64_t(written_.size());
    written_[size_t(second_ + 1) % written_.size()] = 0;
  }
}

void ServeMetrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_.add(seconds);
  advance();
  ++text_tokens_;
  ++written_[size_t(second_) % written_.size()];
}

void ServeMetrics::next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  between_.add(seconds);
  advance();
  ++text_tokens_;
  ++written_[size_t(second_) % written_.size()];
}

void ServeMetrics::prompt_read(int64_t tokens, int64_t cached) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
  cached_tokens_ += cached;
  ++(cached > 0 ? hits_ : misses_);
}

void ServeMetrics::answered(int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[status];
}

void ServeMetrics::now(const Now& now) {
  const std::lock_guard lock(mutex_);
  now_ = now;
}

ServeMetrics::Now ServeMetrics::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

double ServeMetrics::tokens_per_second() const {
  const std::lock_guard lock(mutex_);
  const_cast<ServeMetrics*>(this)->advance();
  const int64_t total = std::accumulate(written_.begin(), written_.end(), int64_t(0));
  return double(total) / double(written_.size());
}

std::string ServeMetrics::page() const {
  std::string page;
  const double speed = tokens_per_second();
  const std::lock_guard lock(mutex_);
  single(page, "streams", "gauge", "Texts that are read or written now.", double(now_.streams));
  single(page, "queue", "gauge", "Prompts that wait for a stream.", double(now_.queued));
  single(page, "state_bytes", "gauge", "States of all streams.", double(now_.state_bytes));
  single(page, "cache_bytes", "gauge", "The prefix cache.", double(now_.cache_bytes));
  single(page, "cache_states", "gauge", "States in the cache.", double(now_.cache_states));
  single(page, "named_states", "gauge", "States with a name.", double(now_.named_states));
  single(page, "tokens_per_second", "gauge", "Tokens written, mean of 10 s.", speed);
  single(page, "text_tokens_total", "counter", "Tokens written.", double(text_tokens_));
  single(page, "prompt_tokens_total", "counter", "Tokens of prompts.", double(prompt_tokens_));
  single(
      page,
      "cached_tokens_total",
      "counter",
      "Tokens of prompts that were not read again.",
      double(cached_tokens_)
  );
  single(page, "cache_hits_total", "counter", "Prompts that went on from a state.", double(hits_));
  single(page, "cache_misses_total", "counter", "Prompts read from their start.", double(misses_));
  head(page, "answers_total", "counter", "Answers by their status.");
  for (const auto& [status, count] : answers_)
    page += fmt::format("horner_answers_total{{status=\"{}\"}} {}\n", status, count);
  first_.write(page, "first_token_seconds", "From the request to its first token.");
  between_.write(page, "next_token_seconds", "From one token of a text to the next.");
  return page;
}

}  // namespace horner
