// Range: while a Range exists, it names the work that its thread does: a phase of a step, a module of a model, or the
// reduction of a gradient bucket.
//
// The names appear in the traces of a run's profile (observe/profile/) and, by NVTX, in those of nsys and ncu. While a
// CUDA graph is captured, each kernel is recorded with the names of the ranges in which it was captured. Memory that a
// module's forward pass allocates is recorded with the names of the module's ranges, too (base/memory_scope.h). A
// user's own model can name its modules in the same way:
//
//   const Range range("encoder");
//
// Invariant: the ranges of one thread are nested: the range that began last ends first.
#pragma once

#include <ATen/record_function.h>

#include <optional>
#include <string>

#include "base/memory_scope.h"

namespace lockstep {

class Range {
 public:
  enum class Of { kModule, kStep };  // kStep: a part of a step (a phase, a bucket, a copy)

  explicit Range(const std::string& name, Of of = Of::kModule);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::optional<ModuleScope> module_;
  at::RecordFunction record_;
};

}  // namespace lockstep
