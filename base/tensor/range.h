// Range: names what the host does while the object lives: a phase of a step, a module of a model, the reduction of a
// bucket.
//
// The names appear in the traces of a run's profile (observe/profile/) and, by NVTX, in those of nsys and ncu. While a
// CUDA graph is captured, each kernel is noted under the ranges that it is captured in. Memory that a forward pass takes
// is noted under its ranges, too. A model of a user's own names
// its modules in the same way:
//
//   const Range range("encoder");
//
// Invariant: ranges of one thread nest: the one that began last ends first.
#pragma once

#include <ATen/record_function.h>

#include <string>

#include "base/memory_scope.h"

namespace lockstep {

class Range {
 public:
  explicit Range(const std::string& name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  ModuleScope module_;  // for what memory is attributed to (observe/memory_watch.h)
  at::RecordFunction record_;
};

}  // namespace lockstep
