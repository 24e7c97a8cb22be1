// MemoryGroups: which values of a program may share memory. Views, and what an operation in place returns, are of their
// input's group; so is what an operation may return as it came, such as dropout.
#pragma once

#include <cstdint>
#include <vector>

#include "models/imported/program.h"

namespace lockstep::exported {

class MemoryGroups {
 public:
  explicit MemoryGroups(const Program& program);

  // The group's number, which is that of one of its values.
  int64_t Of(int64_t value) const;

  // Adds the program's next value, which is in the group of `like`, whose number stays.
  void Add(int64_t like);

 private:
  void Join(int64_t a, int64_t b);

  std::vector<int64_t> parent_, size_;
};

}  // namespace lockstep::exported
