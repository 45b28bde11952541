#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/hash.h"
#include "core/mapped_files.h"

namespace horner {
namespace {

struct Descriptor {
  explicit Descriptor(const std::string& path, int flags = 0)
      : value(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (value < 0) throw DataError("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value); }
  int value;
};

}  // namespace

std::string read_file(const std::string& path) {
  const Descriptor file(path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.value, buffer, sizeof buffer);
    if (count < 0) throw DataError("{}: cannot be read: {}", path, std::strerror(errno));
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
  }
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(path, O_NONBLOCK);  // a pipe is refused below, not waited for
  struct stat status {};
  if (::fstat(file.value, &status) != 0) {
    throw DataError("{}: cannot be read: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw DataError("{}: is not a file", path);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED && errno == ENOMEM)
    throw DeviceError("out of memory: {} has {} bytes", path, size_);
  if (address == MAP_FAILED)
    throw DataError("{}: cannot be mapped: {}", path, std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
  add_mapped(data_, size_, path);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  remove_mapped(data_);
  ::munmap(data_, size_);
}

// A device or a pipe, as /dev/null: it is written, never replaced.
static bool takes_bytes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      beside_(takes_bytes(path_) ? path_ : fmt::format("{}.{}.tmp", path_, ::getpid())) {
  file_ = std::fopen(beside_.c_str(), "wbe");
  if (!file_) throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (!file_) return;
  std::fclose(file_);
  if (beside_ != path_) ::unlink(beside_.c_str());
}

void AtomicFile::write(const void* bytes, size_t count) {
  if (count > 0 &&
      std::fwrite(bytes, 1, count, file_) != count) {  // an empty tensor has no address
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
  }
}

void AtomicFile::commit() {
  const bool beside = beside_ != path_;
  if (std::fflush(file_) != 0 || (beside && ::fsync(::fileno(file_)) != 0) ||
      (beside && std::rename(beside_.c_str(), path_.c_str()) != 0)) {
    throw RunError("{}: cannot be written: {}", path_, std::strerror(errno));
  }
  std::fclose(file_);
  file_ = nullptr;
  if (beside) sync_folder(folder_above(path_));
}

std::string folder_above(const std::string& path) {
  std::filesystem::path whole(path);
  if (!whole.has_filename()) whole = whole.parent_path();  // "runs/"
  return whole.has_parent_path() ? whole.parent_path().string() : ".";
}

void make_folder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return;
  const std::string above = folder_above(path);
  if (above != path && !std::filesystem::is_directory(above, error)) make_folder(above);
  if (std::filesystem::create_directory(path, error)) sync_folder(above);
  if (error) throw RunError("{}: the folder cannot be made: {}", path, error.message());
}

void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = folder >= 0 && ::fsync(folder) == 0;
  const int error = errno;
  if (folder >= 0) ::close(folder);
  // Some file systems cannot sync a folder, and some folders may be written but not read.
  if (!synced && error != EINVAL && error != EACCES && error != ENOTSUP)
    throw RunError("{}: cannot be written: {}", path, std::strerror(error));
}

std::string xxh128_of_file(const std::string& path) {
  const MappedFile file(path);
  return xxh128({reinterpret_cast<const char*>(file.data()), file.size()});
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace horner
