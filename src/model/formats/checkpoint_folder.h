// The folders that `horner train` writes, as a reader sees them. train/checkpoint.h says how they are written.
#pragma once

#include "core/check.h"
#include "core/json.h"
#include "model/model.h"

namespace horner {

// The layout of run folders and checkpoints. 0: written before versions were counted; it is still read.
constexpr int64_t kFormatVersion = 1;
struct VersionError : DataError {
  using DataError::DataError;
};
// VersionError that names both versions if a newer program wrote it.
void check_format_version(const Json& json, const std::string& path);

std::string checkpoint_name(int64_t step);       // step_00001000
bool names_step(const std::string& name);        // whether it is such a name
int64_t step_of(const std::string& checkpoint);  // 1000 of .../step_00001000

// Names of the complete checkpoints in a folder, oldest first.
std::vector<std::string> whole_checkpoints(const std::string& folder);

// The first file of a checkpoint that is not as it was written, with the reason; empty: all are, or it has no checksums.
// Files whose names begin with `except` are not read.
std::string damage(const std::string& checkpoint, std::string_view except = "/");

// The newest checkpoint of a run folder, or the folder itself. DataError if there is none, or if it is damaged.
std::string model_folder(const std::string& folder);

// Parameters and buffers by name, and their values from a safetensors file, which must have all of them. Without `parameters`
// only the buffers get theirs.
std::vector<std::pair<std::string, at::Tensor>> tensors_of(const Model& model);
void read_tensors(Model& model, const std::string& path, bool parameters = true);

}  // namespace horner
