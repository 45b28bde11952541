// One process at a time writes into a folder: an flock on FOLDER/lock, which names its holder. The kernel releases it
// however the process ends, so a lock is never left behind.
#pragma once

#include <string>

namespace horner {

class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);  // RunError that names the holder's pid and host
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int file_;
};

}  // namespace horner
