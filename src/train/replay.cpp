#include "train/replay.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>

namespace horner {

ReplayKernels& replay_kernels() {
  static ReplayKernels kernels;
  return kernels;
}

OwnStream::OwnStream(at::Device device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl gpu(device.type());
  gpu.getStream(device).synchronize();  // what was computed before is there
  // One for each thread: torch hands out 32 in turn, and a second user of a stream would end up in the first one's graph.
  thread_local std::map<c10::DeviceIndex, c10::Stream> own;
  const auto found = own.find(device.index());
  guard_.emplace(
      found != own.end()
          ? found->second
          : own.emplace(device.index(), gpu.getStreamFromGlobalPool(device)).first->second
  );
}

OwnStream::~OwnStream() {
  if (!guard_) return;
  try {
    guard_->current_stream().synchronize();
  } catch (const std::exception&) {
    // A broken GPU has failed the run already; its error is on the way.
  }
}

}  // namespace horner
