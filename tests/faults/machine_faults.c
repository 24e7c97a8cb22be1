// A library for tests, loaded through LD_PRELOAD. It simulates a faulty machine, as these environment variables say:
//   SYNC_MS=N        fsync() and fdatasync() take N milliseconds longer, as on an overloaded disk
//   OPEN_US=N        opening a file whose name ends with $OPEN_END takes N microseconds longer, as on a slow disk
//   CLOCK_S=N        the wall clock is N seconds fast; if N is negative, it is slow
//   CLOCK_RANK=RANK  CLOCK_S applies only to the process of that rank under mpirun
//   NO_DRIVER=CODE   cudaGetDeviceCount() returns the error CODE (cudaError_t) and finds no GPU
//   BROKEN_GPU=FILE  once FILE exists, cudaMemcpyAsync() fails on the GPU whose UUID (32 hexadecimal digits) is in FILE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long Number(const char* variable) {
  const char* const text = getenv(variable);
  return text == NULL ? 0 : atol(text);
}

static void Sleep(long us) {
  const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

static void Delay(void) { Sleep(1000 * Number("SYNC_MS")); }

int open(const char* path, int flags, ...) {
  const char* const end = getenv("OPEN_END");
  if (end != NULL && strlen(path) >= strlen(end) &&
      strcmp(path + strlen(path) - strlen(end), end) == 0) {
    Sleep(Number("OPEN_US"));
  }
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return REAL(open)(path, flags, mode);
}

int fsync(int file) {
  Delay();
  return REAL(fsync)(file);
}

int fdatasync(int file) {
  Delay();
  return REAL(fdatasync)(file);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int status = REAL(clock_gettime)(clock, time);
  const char* const meant = getenv("CLOCK_RANK");
  const char* const own = getenv("OMPI_COMM_WORLD_RANK");
  if (clock == CLOCK_REALTIME && (meant == NULL || (own != NULL && strcmp(meant, own) == 0))) {
    time->tv_sec += Number("CLOCK_S");
  }
  return status;
}

// Writes the UUID of this thread's current GPU to `text`, as 32 hexadecimal digits; writes an empty text if there is
// none.
static void FindUuid(char* text) {
  int (*const current)(int*) = (int (*)(int*))dlsym(RTLD_DEFAULT, "cudaGetDevice");
  int (*const ask)(void*, int) =
      (int (*)(void*, int))dlsym(RTLD_DEFAULT, "cudaGetDeviceProperties");
  // `properties` is the memory of a cudaDeviceProp. In it the name has 256 bytes, and the UUID follows the name.
  static _Thread_local unsigned char properties[1 << 14];
  int gpu = 0;
  *text = 0;
  if (current == NULL || ask == NULL || current(&gpu) != 0 || ask(properties, gpu) != 0) return;
  for (int i = 0; i < 16; ++i) sprintf(text + 2 * i, "%02x", properties[256 + i]);
}

static int IsBroken(void) {
  const char* const path = getenv("BROKEN_GPU");
  FILE* const file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return 0;
  char broken[33] = {0};
  char own[33];
  const size_t size = fread(broken, 1, 32, file);
  fclose(file);
  FindUuid(own);
  return size == 32 && strcmp(broken, own) == 0;
}

int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  const int kEccUncorrectable = 214;
  return IsBroken() ? kEccUncorrectable : REAL(cudaMemcpyAsync)(to, from, bytes, kind, stream);
}

int cudaGetDeviceCount(int* count) {
  if (getenv("NO_DRIVER") == NULL) return REAL(cudaGetDeviceCount)(count);
  *count = 0;
  return (int)Number("NO_DRIVER");
}
