// States with names: saved, forked, rolled back, written to disk. A chat goes on from any of them.
//
//   FOLDER/NAME.safetensors   tokens (T), read (1), and the tensors of the state after the first `read` tokens
//
// One server at a time has a folder. What a killed one left half-written is deleted by the next one.
//
// Not for several threads: the worker's thread owns it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/folder_lock.h"
#include "core/json.h"
#include "serve/prefix_cache.h"

namespace horner {

struct NamedState {
  std::vector<int32_t> tokens;
  int64_t read = 0;  // tokens that the state has read; the rest is read when it is used
  std::unique_ptr<StreamState> state;  // null: nothing is read
  int64_t created = 0;                 // seconds since 1970
  bool on_disk = false;
};

class NamedStates {
 public:
  // `folder`: states are written there and read from there at once; empty: they live as long as the program.
  // `fingerprint` tells models apart: a state of another model is not read. RunError if another process has the folder.
  NamedStates(Runner& runner, std::string folder, std::string fingerprint, int64_t most);

  // ApiError 400: only letters, digits, '.', '_' and '-'.
  static void check_name(const std::string& name);
  // Replaces an old one. ApiError 429 if there are too many, 409 if the folder has another file of this name: a state of another
  // model, or a model. Whatever is thrown, the old one stays.
  void save(const std::string& name, NamedState state);
  const NamedState& at(const std::string& name) const;  // ApiError 404
  void fork(const std::string& from, const std::string& to);
  // To its first tokens; the state comes from the cache where it has one.
  void roll_back(const std::string& name, int64_t tokens, PrefixCache& cache);
  void remove(const std::string& name);
  std::string file_of(const std::string& name) const;  // bytes of its safetensors file

  Json list() const;
  Json describe(const std::string& name) const;
  int64_t size() const { return int64_t(states_.size()); }
  int64_t bytes() const { return bytes_; }  // of memory; what they share counts once

 private:
  std::string path_of(const std::string& name) const;
  void write(const NamedState& state, const std::string& path) const;
  void measure();
  void read(const std::string& name, const std::string& path);

  Runner& runner_;
  const std::string folder_, fingerprint_;
  const int64_t most_;
  std::optional<FolderLock> lock_;  // of the folder
  int64_t bytes_ = 0;
  std::map<std::string, NamedState> states_;
};

}  // namespace horner
