#include "lab/mps.h"

#include <cstdlib>
#include <filesystem>

#include "lab/process.h"

namespace horner {
namespace {

// The daemon must not keep the pipe of run_program, so it gets no output.
bool succeeds(const std::string& script, const std::string& folder) {
  const std::string whole =
      "export CUDA_MPS_PIPE_DIRECTORY=\"$1\" CUDA_MPS_LOG_DIRECTORY=\"$1\"; " + script;
  try {
    return run_program({"sh", "-c", whole, "sh", folder}, [](const std::string&) {}) == 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Mps::Mps(bool wanted) {
  if (!wanted || std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr) return;
  std::string place = (std::filesystem::temp_directory_path() / "horner_mps_XXXXXX").string();
  if (::mkdtemp(place.data()) == nullptr) return;
  folder_ = place;
  runs_ = succeeds("nvidia-cuda-mps-control -d >/dev/null 2>&1", folder_);
}

Mps::~Mps() {
  if (runs_) succeeds("echo quit | nvidia-cuda-mps-control >/dev/null 2>&1", folder_);
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

std::vector<std::string> Mps::environment() const {
  if (!runs_) return {};
  return {"CUDA_MPS_PIPE_DIRECTORY=" + folder_, "CUDA_MPS_LOG_DIRECTORY=" + folder_};
}

}  // namespace horner
