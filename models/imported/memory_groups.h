// MemoryGroups: divides the values of a program into groups. Values that may share memory are in the same group. An
// operation's result is in the group of an argument if the result may be a view of the argument, or the argument
// itself: in-place operations always return an argument, and some other operations, such as dropout, may do so.
#pragma once

#include <cstdint>
#include <vector>

#include "models/imported/program.h"

namespace lockstep::exported {

class MemoryGroups {
 public:
  explicit MemoryGroups(const Program& program);

  // Returns the number of the value's group. The number of a group is that of one of its values.
  int64_t Of(int64_t value) const;

  // Adds the program's next value to the group of `like`. The group keeps its number.
  void Add(int64_t like);

 private:
  void Join(int64_t a, int64_t b);

  std::vector<int64_t> parent_, size_;
};

}  // namespace lockstep::exported
