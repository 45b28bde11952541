#include "nn/part.h"

#include <ATen/SequenceNumber.h>

#include <atomic>
#include <mutex>
#include <string_view>

namespace horner {
namespace {

std::atomic<bool> recording = false;
std::mutex mutex;
std::vector<PartMark> marks;
thread_local const char* current = parts::kOther;

void mark(const char* part) {
  current = part;
  const std::lock_guard<std::mutex> lock(mutex);
  marks.push_back({at::RecordFunction::currentThreadId(), at::sequence_number::peek(), part});
}

bool whole(std::string_view part) { return part == parts::kMlp || part == parts::kHead; }

}  // namespace

void record_parts(bool on) { recording = on; }

std::vector<PartMark> take_part_marks() {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(marks, {});
}

Part::Part(const char* name) {
  if (!recording.load(std::memory_order_relaxed) || whole(current)) return;
  before_ = current;
  mark(name);
  event_.emplace(at::RecordScope::FUNCTION);
  if (event_->isActive()) event_->before(kPartPrefix + std::string(name));
}

Part::~Part() {
  if (before_ != nullptr) mark(before_);
}

}  // namespace horner
