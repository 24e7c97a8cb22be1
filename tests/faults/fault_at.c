// A library for tests, loaded through LD_PRELOAD. It injects a fault at the FAULT_AT-th call (counted from 1) by which
// a program changes a file system.
//   FAULT=kill        the process is killed (SIGKILL) before the call; a pwrite() first writes half of its bytes
//   FAULT=ENOSPC, EIO, EDQUOT, EROFS   this call and all later ones fail with this errno
// The calls of all threads of a process are counted together.
//   FAULT_PATH=TEXT    counts only calls on files whose path contains TEXT; write() is counted only if this is set
//   FAULT_RANK=RANK    only the process of that rank under mpirun has the fault
//   FAULT_COUNT=FILE   a process that exits by itself writes the number of its counted calls to FILE
//
// FAULT_LOG=FILE appends to FILE, for each call that succeeded, one of the lines below. After a line with `write` or
// `say`, the bytes that were written follow.
//   create PATH          open() or openat() that may make a file
//   write PATH OFFSET BYTES
//   truncate PATH BYTES
//   sync PATH            fsync() of a file or a folder
//   rename FROM TO | mkdir PATH | unlink PATH | rmdir PATH
//   say BYTES            a write to standard output
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long calls;

// Returns the path of the open file `file`. The next call of PathOf() on the same thread overwrites the result.
static const char* PathOf(int file) {
  static _Thread_local char path[4097];
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = 0;
  return path;
}

static int IsMeantRank(void) {
  const char* const rank = getenv("FAULT_RANK");
  const char* const own = getenv("OMPI_COMM_WORLD_RANK");
  return rank == NULL || (own != NULL && strcmp(rank, own) == 0);
}

// Counts a call on `path`, or on the open `file` if `path` is NULL, and returns the fault for it: 0 if the call must
// not fail, -1 if the process must be killed, otherwise the value of errno with which the call must fail.
static int Fault(const char* path, int file) {
  const char* const at = getenv("FAULT_AT");
  const char* const kind = getenv("FAULT");
  const char* const text = getenv("FAULT_PATH");
  if (at == NULL || kind == NULL || !IsMeantRank()) return 0;
  if (text != NULL && strstr(path == NULL ? PathOf(file) : path, text) == NULL) return 0;
  const long call = atomic_fetch_add(&calls, 1) + 1;
  if (call < atol(at)) return 0;
  if (strcmp(kind, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(kind, "EIO") == 0) return EIO;
  if (strcmp(kind, "EDQUOT") == 0) return EDQUOT;
  if (strcmp(kind, "EROFS") == 0) return EROFS;
  return -1;
}

__attribute__((destructor)) static void TellCount(void) {
  const char* const path = getenv("FAULT_COUNT");
  if (path == NULL || !IsMeantRank()) return;
  char line[32];
  const int length = snprintf(line, sizeof(line), "%ld\n", atomic_load(&calls));
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0 || syscall(SYS_write, file, line, (size_t)length) != length) abort();
  syscall(SYS_close, file);
}

static void Kill(void) {
  kill(getpid(), SIGKILL);
  while (1) pause();
}

// Appends to the file FAULT_LOG the line that `format` and the arguments make, and after it the `count` bytes at
// `bytes`. Does nothing if FAULT_LOG is not set.
static void Record(const void* bytes, size_t count, const char* format, ...) {
  const char* const path = getenv("FAULT_LOG");
  if (path == NULL) return;
  char line[9000];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  // The log is written by syscall(), because this library replaces open() and write().
  const long log = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (log < 0 || syscall(SYS_write, log, line, (size_t)length) != length ||
      syscall(SYS_write, log, bytes, count) != (long)count) {
    abort();
  }
  syscall(SYS_close, log);
}

#define RECORDED(call, ...)                        \
  do {                                             \
    const int result = (int)(call);                \
    if (result == 0) Record(NULL, 0, __VA_ARGS__); \
    return result;                                 \
  } while (0)

#define FAIL_HERE(path, file)            \
  do {                                   \
    const int fault = Fault(path, file); \
    if (fault < 0) Kill();               \
    if (fault > 0) {                     \
      errno = fault;                     \
      return -1;                         \
    }                                    \
  } while (0)

static mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                 \
  int name(const char* path, int flags, ...) {                                     \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = ModeOf(flags, arguments);                                  \
    va_end(arguments);                                                             \
    if ((flags & O_CREAT) != 0) FAIL_HERE(path, -1);                               \
    const int file = REAL(name)(path, flags, mode);                                \
    if (file >= 0 && (flags & O_CREAT) != 0) Record(NULL, 0, "create %s\n", path); \
    return file;                                                                   \
  }
OPEN(open)
OPEN(open64)

// Returns the path of `name` in the open folder `folder`. The next call on the same thread may overwrite the result.
static const char* PathIn(int folder, const char* name) {
  static _Thread_local char path[8200];
  if (folder == AT_FDCWD || name[0] == '/') return name;
  snprintf(path, sizeof(path), "%s/%s", PathOf(folder), name);
  return path;
}

#define OPENAT(function)                                                                   \
  int function(int folder, const char* name, int flags, ...) {                             \
    va_list arguments;                                                                     \
    va_start(arguments, flags);                                                            \
    const mode_t mode = ModeOf(flags, arguments);                                          \
    va_end(arguments);                                                                     \
    if ((flags & O_CREAT) != 0) FAIL_HERE(PathIn(folder, name), -1);                       \
    const int file = REAL(function)(folder, name, flags, mode);                            \
    if (file >= 0 && (flags & O_CREAT) != 0) Record(NULL, 0, "create %s\n", PathOf(file)); \
    return file;                                                                           \
  }
OPENAT(openat)
OPENAT(openat64)

int unlinkat(int folder, const char* name, int flags) {
  FAIL_HERE(PathIn(folder, name), -1);
  RECORDED(REAL(unlinkat)(folder, name, flags), "unlink %s\n", PathIn(folder, name));
}

// Defines pwrite() or pwrite64(). If the process must be killed, half of the bytes are written first.
#define WRITE(name, offset_type)                                                       \
  ssize_t name(int file, const void* bytes, size_t count, offset_type offset) {        \
    const int fault = Fault(NULL, file);                                               \
    if (fault < 0) {                                                                   \
      if (count > 1 && REAL(name)(file, bytes, count / 2, offset) < 0) abort();        \
      Kill();                                                                          \
    }                                                                                  \
    if (fault > 0) {                                                                   \
      errno = fault;                                                                   \
      return -1;                                                                       \
    }                                                                                  \
    const ssize_t written = REAL(name)(file, bytes, count, offset);                    \
    if (written > 0) {                                                                 \
      Record(bytes, (size_t)written, "write %s %ld %ld\n", PathOf(file), (long)offset, \
             (long)written);                                                           \
    }                                                                                  \
    return written;                                                                    \
  }
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

ssize_t write(int file, const void* bytes, size_t count) {
  if (getenv("FAULT_PATH") != NULL) FAIL_HERE(NULL, file);
  const ssize_t written = REAL(write)(file, bytes, count);
  if (file == STDOUT_FILENO && written > 0)
    Record(bytes, (size_t)written, "say %ld\n", (long)written);
  return written;
}

int fsync(int file) {
  FAIL_HERE(NULL, file);
  RECORDED(REAL(fsync)(file), "sync %s\n", PathOf(file));
}

int fdatasync(int file) {
  FAIL_HERE(NULL, file);
  RECORDED(REAL(fdatasync)(file), "sync %s\n", PathOf(file));
}

int syncfs(int file) {
  FAIL_HERE(NULL, file);
  return REAL(syncfs)(file);
}

int ftruncate(int file, off_t bytes) {
  FAIL_HERE(NULL, file);
  RECORDED(REAL(ftruncate)(file, bytes), "truncate %s %ld\n", PathOf(file), (long)bytes);
}

int ftruncate64(int file, off64_t bytes) {
  FAIL_HERE(NULL, file);
  RECORDED(REAL(ftruncate64)(file, bytes), "truncate %s %ld\n", PathOf(file), (long)bytes);
}

int rename(const char* from, const char* to) {
  FAIL_HERE(to, -1);
  RECORDED(REAL(rename)(from, to), "rename %s %s\n", from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) {
  FAIL_HERE(to, -1);
  RECORDED(REAL(renameat2)(from_folder, from, to_folder, to, flags), "rename %s %s\n", from, to);
}

int mkdir(const char* path, mode_t mode) {
  FAIL_HERE(path, -1);
  RECORDED(REAL(mkdir)(path, mode), "mkdir %s\n", path);
}

int unlink(const char* path) {
  FAIL_HERE(path, -1);
  RECORDED(REAL(unlink)(path), "unlink %s\n", path);
}

int rmdir(const char* path) {
  FAIL_HERE(path, -1);
  RECORDED(REAL(rmdir)(path), "rmdir %s\n", path);
}
