// Work of a GPU that is recorded once and then replayed in one call, and the stream that it runs on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace horner {

class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run() = 0;  // on the current stream
};

// What libhorner_cuda.so provides.
struct ReplayKernels {
  // Records what `work` starts on the current stream, and runs nothing. Tensors that the work reads or writes must keep their
  // memory. Null if the work cannot be recorded, because it waits for the GPU for example; `why` then says so. `beside`: a
  // replay that never runs at the same time; both then use the same memory for what they compute on the way. Null: none.
  std::unique_ptr<Replay> (*record
  )(const std::function<void()>& work, std::string& why, const Replay* beside) = nullptr;
};
ReplayKernels& replay_kernels();
ReplayKernels cuda_replay_kernels();  // in libhorner_cuda.so

// While it lives, this thread works on a stream of its own if the device is a GPU. A graph cannot be recorded on the default
// stream, and runs in several threads overlap only on different streams.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream();

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace horner
