// Files: read whole, mapped into memory, or written under a temporary name and renamed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace horner {

// DataError when it cannot be read.
std::string read_file(const std::string& path);

// A whole file in memory, read on demand. Writing to the memory does not change the file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes to a temporary file and renames it to `path`, so that `path` is the old file or the complete new one, also after a
// power loss.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit() nothing is left behind

  void write(const void* bytes, size_t count);
  void commit();

 private:
  std::string path_, beside_;
  std::FILE* file_;
};

// Makes a folder with its parents, durably; RunError if that fails.
void make_folder(const std::string& path);

// Waits until the names in a folder are on the disk: a rename survives a power loss only after this.
void sync_folder(const std::string& path);

std::string folder_above(const std::string& path);  // "." for a bare name

std::string xxh128_of_file(const std::string& path);  // core/hash.h

void write_file(const std::string& path, std::string_view content);

}  // namespace horner
