// RecordedCalls, for tests: computes in which states a disk may be if the power fails while a program runs. The input
// is the log of the program's calls that tests/faults/fault_at.c recorded.
//
// The model of a disk: an fsync of a file makes it certain that the bytes written to the file are on the disk, and an
// fsync of a folder makes it certain that the names in the folder are on the disk. If a folder was changed after its
// last fsync, the first n of these changes are on the disk, for any n. If bytes were appended to a file after its last
// fsync, the first n of these bytes, or n zeros in their place, are on the disk, for any n.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep {

class RecordedCalls {
 public:
  // Reads the calls from the file `log`. `root` is the folder in which the program worked. When the program began, this
  // folder was empty and was on the disk.
  RecordedCalls(const std::string& log, std::string root);

  size_t size() const { return calls_.size(); }

  // Returns what the program wrote to standard output in the first `calls` calls.
  std::string SaidIn(size_t calls) const;

  enum class Kept { kNothing, kAll, kSome };
  // Creates, in the empty folder `folder`, the files of one state that the disk may have if the power fails after the
  // first `calls` calls. `kept` says whether none, all or a random part of the changes that were not synced are on the
  // disk.
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
