// CompiledKernel(): compiles the text of a generated kernel with NVRTC, which takes a third of a second, and keeps the
// result in the folder kernels/ of the cache folder. CompileAhead() lets other threads do that, one for each usable core,
// before the kernel is needed: before a run's first step for all groups of operations (trainer/run/foretell.h).
//
// A file's name is made of the text, the GPU's compute capability and NVRTC's version. The file begins with a checksum of
// the rest.
//
// what can fail -> what the caller sees -> the test that shows it (ops/generated/kernel_cache_test.cc)
//   the cache folder is not the user's own, others may write to it, or it cannot be written -> each process compiles the
//     kernels itself -> KernelFolder.*, KernelFile.AFolderThatCannotBeWritten
//   a file is damaged, or was cut short when a process was killed -> it is compiled again -> KernelFile.Damaged*
//   NVRTC refuses the text -> BugError with its first line -> nothing: the text is ours
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::ops {

// Begins to compile the kernel with this text for the current GPU, unless it is there.
void CompileAhead(const std::string& text);

// Returns the kernel with this text for the current GPU. KernelPrelude() is put in front of the text.
cudaKernel_t CompiledKernel(const std::string& text);

struct KernelReport {
  int64_t compiled = 0;    // kernels that this process has compiled
  int64_t kept = 0;        // kernels that were there in the cache folder
  double compiling_s = 0;  // the time of the compilations, added up
  double waited_s = 0;     // how long callers of CompiledKernel() have waited for the code
};

// Returns what this process has done so far for its kernels.
KernelReport GeneratedKernels();

// Creates the folder for compiled kernels in the folder `cache`, and returns the path of the created folder. Returns an
// empty string if the folder cannot be created, belongs to another user, or can be written by other users.
std::string KernelFolder(const std::string& cache);

// Returns the content of a kept file, without the checksum; nothing if there is no such file or it is damaged.
std::optional<std::string> KeptKernel(const std::string& path);

// Writes a file for KeptKernel(). Does nothing if it cannot be written.
void KeepKernel(const std::string& path, std::string_view content);

}  // namespace lockstep::ops
