#include "core/initial.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace horner {
namespace {

thread_local std::optional<uint64_t> current;  // key of the innermost scope

// The weights of one model at a time: they are drawn from the one generator of the process.
std::recursive_mutex& one_model() {
  static std::recursive_mutex mutex;
  return mutex;
}

uint64_t scramble(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t mix(uint64_t key, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325 ^ scramble(key + 1);
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return scramble(hash);
}

uint64_t mix(uint64_t key, uint64_t number) {
  return scramble(scramble(key + 1) + 0x9e3779b97f4a7c15 * (number + 1));
}

Initial::Initial(uint64_t seed) : outer_(current) { enter(mix(seed, "")); }

Initial::Initial(std::string_view name) : outer_(current) {
  if (current) enter(mix(*current, name));
}

void Initial::enter(uint64_t key) {
  one_model().lock();  // until the end of this scope
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  before_ = generator.clone();
  generator.set_current_seed(key);
  current = key;
}

Initial::~Initial() {
  current = outer_;
  if (!before_.defined()) return;
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(before_.get_state());
  }
  one_model().unlock();
}

}  // namespace horner
