// NVIDIA's multi-process service, for programs that share a GPU: their kernels then run side by side instead of in turn.
#pragma once

#include <string>
#include <vector>

namespace horner {

// While it lives, a service of its own runs, in a folder of its own. Nothing starts where nvidia-cuda-mps-control is not
// installed, or where the user has set CUDA_MPS_PIPE_DIRECTORY, which says that a service runs already.
class Mps {
 public:
  explicit Mps(bool wanted = true);
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  ~Mps();

  bool runs() const { return runs_; }
  std::vector<std::string> environment() const;  // NAME=value, for the programs that shall use it

 private:
  std::string folder_;
  bool runs_ = false;
};

}  // namespace horner
