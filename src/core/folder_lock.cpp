#include "core/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace horner {
namespace {

std::string host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

std::string holder(int file) {
  char text[512] = {};
  const ssize_t count = ::pread(file, text, sizeof text - 1, 0);
  const std::string line(text, count > 0 ? size_t(count) : 0);
  return line.empty() ? "another process" : line.substr(0, line.find('\n'));
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file_ < 0) throw RunError("{}: cannot be written: {}", path, std::strerror(errno));
  int result = 0;
  do {
    result = ::flock(file_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) {
    const std::string who = holder(file_);
    ::close(file_);
    throw RunError("{}: is in use by {}; wait for it, or end it", folder, who);
  }
  // Other errors: a file system without locks. Then the folder is used without one.
  const std::string line = fmt::format("process {} on {}\n", ::getpid(), host());
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, line.data(), line.size(), 0) < 0) {
    const int error = errno;
    ::close(file_);
    throw RunError("{}: cannot be written: {}", path, std::strerror(error));
  }
}

FolderLock::~FolderLock() { ::close(file_); }

}  // namespace horner
