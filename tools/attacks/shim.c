// Preloaded into the program (LD_PRELOAD): sees the calls that write below HORNER_SHIM_ROOT.
//
//   HORNER_SHIM_LOG=FILE     a line per call: "fopen PATH", "fwrite PATH", "fsync PATH", "rename FROM TO", "mkdir PATH"
//   HORNER_SHIM_FAIL=N:E     the N-th of these calls fails with errno E
//   HORNER_SHIM_CUT=N        before the N-th of these calls the process is killed
//   HORNER_SHIM_DISK=DIR     what a disk would hold after a power loss: for each synced file its bytes, for each synced
//                            folder its list of names, both by inode
//   HORNER_SHIM_ACCEPT=N     the first N connections of clients are aborted before they are accepted
//   HORNER_SHIM_THREADS=FILE while the file is there, no thread can be made
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int inside(const char* path) {
  const char* root = getenv("HORNER_SHIM_ROOT");
  return root && strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, PATH_MAX - 1);
  path[n < 0 ? 0 : n] = 0;
  return n > 0 && inside(path);
}

// Returns whether the call is to fail.
static int seen(const char* what, const char* a, const char* b) {
  static int count = 0;
  const int n = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  const char *log = getenv("HORNER_SHIM_LOG"), *cut = getenv("HORNER_SHIM_CUT"), *fail = getenv("HORNER_SHIM_FAIL");
  if (cut && atoi(cut) == n) kill(getpid(), SIGKILL);
  if (log) {
    char line[2 * PATH_MAX + 32];
    const int length = snprintf(line, sizeof line, "%s %s%s%s\n", what, a, *b ? " " : "", b);
    const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (write(fd, line, (size_t)length) < 0) abort();
    close(fd);
  }
  if (!fail || atoi(fail) != n) return 0;
  errno = atoi(strchr(fail, ':') + 1);
  return 1;
}

static void name_of(const char* path, char* name) {  // inode and time of birth: inodes are used again
  struct statx s;
  if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &s) != 0) memset(&s, 0, sizeof s);
  sprintf(name, "%llu_%lld.%u", (unsigned long long)s.stx_ino, (long long)s.stx_btime.tv_sec, s.stx_btime.tv_nsec);
}

static void keep(const char* path) {
  const char* disk = getenv("HORNER_SHIM_DISK");
  if (!disk) return;
  char name[128], to[PATH_MAX + 160], beside[PATH_MAX + 200];
  struct stat status;
  if (stat(path, &status) != 0) return;
  name_of(path, name);
  snprintf(to, sizeof to, "%s/%s%s", disk, name, S_ISDIR(status.st_mode) ? ".folder" : "");
  snprintf(beside, sizeof beside, "%s.new", to);
  const int out = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (S_ISDIR(status.st_mode)) {
    DIR* folder = opendir(path);
    for (struct dirent* e = folder ? readdir(folder) : NULL; e; e = readdir(folder)) {
      char below[2 * PATH_MAX], line[PATH_MAX + 160];
      if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
      snprintf(below, sizeof below, "%s/%s", path, e->d_name);
      name_of(below, name);
      const int n = snprintf(line, sizeof line, "%s %s %s\n", e->d_type == DT_DIR ? "folder" : "file", name, e->d_name);
      if (write(out, line, (size_t)n) < 0) abort();
    }
    if (folder) closedir(folder);
  } else {
    char buffer[1 << 16];
    const int in = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
      if (write(out, buffer, (size_t)n) < 0) abort();
    close(in);
  }
  close(out);
  syscall(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, to, 0);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(fsync)(fd);
  if (seen("fsync", path, "")) return -1;
  keep(path);
  return 0;
}

int rename(const char* from, const char* to) {
  if (inside(to) && seen("rename", from, to)) return -1;
  return REAL(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  if (inside(path) && seen("mkdir", path, "")) return -1;
  return REAL(mkdir)(path, mode);
}

FILE* fopen(const char* path, const char* mode) {
  if (inside(path) && strpbrk(mode, "wa") && seen("fopen", path, "")) return NULL;
  return REAL(fopen)(path, mode);
}

size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  char path[PATH_MAX];
  if (path_of(fileno(file), path) && seen("fwrite", path, "")) return 0;
  return REAL(fwrite)(bytes, size, count, file);
}

static int aborted(int client) {
  static int count = 0;
  const char* most = getenv("HORNER_SHIM_ACCEPT");
  if (!most || client < 0 || __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) > atoi(most)) return client;
  close(client);
  errno = ECONNABORTED;
  return -1;
}

int accept(int fd, struct sockaddr* address, socklen_t* size) { return aborted(REAL(accept)(fd, address, size)); }
int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  return aborted(REAL(accept4)(fd, address, size, flags));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* given) {
  const char* file = getenv("HORNER_SHIM_THREADS");
  if (file && access(file, F_OK) == 0) return EAGAIN;
  return REAL(pthread_create)(thread, how, run, given);
}
