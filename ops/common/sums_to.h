// SumsTo: the memory to which a kernel writes the float32 sum of each column of a matrix.
#pragma once

namespace lockstep::ops {

struct SumsTo {
  float* sums = nullptr;  // [columns] on the device; null: the sums are not wanted
  bool adds = false;      // whether the kernel adds to `sums` instead of overwriting it
};

}  // namespace lockstep::ops
