// The parts of `study`: each adds its curves and claims to the report.
#pragma once

#include "lab/theory/theory.h"

namespace horner::theory {

// Streams of random numbers, one per use and length, so that no two share a prompt.
enum class Use : uint32_t {
  axes,
  values,
  queries,
  fixed,
  random,
  risk,
  population,
  training,
  evaluation
};
inline uint32_t stream(Use use, size_t number = 0) {
  return uint32_t(use) << 16 | uint32_t(number);
}

struct Lab {
  const Options& options;
  at::Device device;
  Report& report;
  int threads;
  std::function<void(const std::string& part, const std::string& what)> tell;

  at::Tensor normals(Use, size_t number, int64_t first, at::IntArrayRef shape) const;

  // body(i) for i = 0 .. n-1. On a CPU each of `threads` threads takes the next i, and torch uses one thread inside.
  void each(int64_t n, const std::function<void(int64_t)>& body) const;

  // body(first, count) for the prompts 0 .. R-1, in pieces whose (count, Q, L) weights fit in the cache. Pieces run at the
  // same time, so body must write only to its own rows.
  void in_pieces(int64_t R, int64_t Q, int64_t L, const std::function<void(int64_t, int64_t)>& body)
      const;

  void claim(
      const std::string& part, const std::string& statement, Interval, double least, double most
  ) const;
};

void identities(const Lab&);
void concentration(const Lab&);
void random_query(const Lab&);
void regression(const Lab&);
void dynamics(const Lab&);

}  // namespace horner::theory
