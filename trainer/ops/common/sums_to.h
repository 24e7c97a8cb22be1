// SumsTo: the memory to which a kernel writes the float32 sums over the rows of a matrix.
#pragma once

namespace lockstep::ops {

struct SumsTo {
  float* sums = nullptr;  // [columns] on the device; null: they are not wanted
  bool adds = false;      // to what is there, instead of over it
};

}  // namespace lockstep::ops
