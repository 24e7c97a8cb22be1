// SumsTo: the memory to which a kernel writes the float32 sums over the rows of a matrix.
#pragma once

namespace lockstep::ops {

struct SumsTo {
  float* sums = nullptr;  // [columns] on the device; null: the sums are not wanted
  bool adds = false;      // whether the kernel adds to the values there instead of overwriting them
};

}  // namespace lockstep::ops
