// For tests: what a disk may hold when the power goes at some instant of a program that tests/faults/
// fault_at.c recorded.
//
// What a disk is held to: bytes that were written are there after an fsync of their file, names after one of
// their folder. Of what came later any part may be there: of a folder's changes those up to any one of them,
// of a file's bytes any beginning, or zeros.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep {

class RecordedCalls {
 public:
  // `root`: the folder that the program worked in, which was empty and is on the disk.
  RecordedCalls(const std::string& log, std::string root);

  size_t size() const { return calls_.size(); }

  // What the program wrote to standard output in the first `calls` calls.
  std::string SaidIn(size_t calls) const;

  enum class Kept { kNothing, kAll, kSome };
  // Makes in `folder`, an empty one, what may be there where the power went after so many calls. `kept`: of
  // what was not synced.
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
