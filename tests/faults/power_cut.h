// For tests: computes what a disk may hold if the power fails at some moment of a program whose calls
// tests/faults/fault_at.c recorded.
//
// The model of a disk: bytes that were written are there after an fsync of their file, and names are there after an
// fsync of their folder. Later changes may be there in part: the changes of a folder up to any one of them, and any
// beginning of a file's bytes, or zeros.
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
  // Makes, in the empty folder `folder`, what may be on the disk if the power fails after `calls` calls. `kept` says
  // how much of the changes that were not synced is there.
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
