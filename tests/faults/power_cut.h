// For tests: computes the states in which a disk may be if the power fails while a program runs, from the program's
// calls that tests/faults/fault_at.c recorded.
//
// The model of a disk: bytes that were written are on the disk after an fsync of their file, and names after an fsync
// of their folder. Changes that were not synced may be there in part: of a folder's changes, those up to any one of
// them; of a file's bytes, any leading part, or zeros.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep {

class RecordedCalls {
 public:
  // `root` is the folder in which the program worked. At the start it was empty and was on the disk.
  RecordedCalls(const std::string& log, std::string root);

  size_t size() const { return calls_.size(); }

  // Returns what the program wrote to standard output in the first `calls` calls.
  std::string SaidIn(size_t calls) const;

  enum class Kept { kNothing, kAll, kSome };
  // Makes, in the empty folder `folder`, a state that the disk may have if the power fails after `calls` calls. `kept`
  // says how many of the changes that were not synced are on the disk.
  void Restore(size_t calls, Kept kept, std::mt19937& random, const std::string& folder) const;

 private:
  struct Call {
    std::string name;
    std::vector<std::string> paths;
    std::vector<int64_t> numbers;
    std::string bytes;
  };

  std::string root_;
  std::vector<Call> calls_;
};

}  // namespace lockstep
