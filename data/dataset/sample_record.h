// SampleRecord: a hash of a part of each sample, such as its image, as a run has read this part for the first time.
// Later the same run, also after it was resumed, notices when the part of a sample is not what it was.
//
// Promise: a record takes four bytes for each sample, and the hash of a sample's bytes is all that it adds to the time
// in which the sample is read. Any number of threads may call Check() and Keep() at once. A sample that cannot be read
// or decoded leaves no hash, so that its file may be mended.
//
// Protocol:
//   1. whoever reads the part of sample i calls Check(i, HashOf(bytes)), decodes the bytes, and calls Keep(i, hash)
//   2. checkpoints hold hashes(), which the ranks have merged (trainer/run/made_of.h). A resumed run calls
//      Restore() before it reads samples
//   3. before its first step, the resumed run reads again the samples whose files have changed since the checkpoint
//      (Options::changed_since), as far as a limit allows (VerifyChanged()). All other samples are checked when they
//      are read
//
// what can fail -> what the caller sees -> the test that shows it (data/dataset/sample_record_test.cc)
//   the part of a sample has changed -> ChangedSample from Check() or VerifyChanged(), with the sample's name, also if
//     data.bad_samples lets a run go on without samples that cannot be read -> SampleRecord.NamesWhatHasChanged,
//     SkipBad.NeverHidesASampleThatHasChanged, tests/made_of_test.py
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {

// The error that a sample is another one than before.
class ChangedSample : public Error {
 public:
  explicit ChangedSample(const std::string& name);
};

class SampleRecord {
 public:
  struct Options {
    std::string part;  // the name of the part, such as "images"
    int64_t samples = 0;
    // Returns the name of sample `i` for messages.
    std::function<std::string(int64_t i)> name_of;
    // Reads the part of sample `i` and returns its hash. Throws Error.
    std::function<uint32_t(int64_t i)> read;
    // Returns those of `samples`, which ascend, whose files were changed, copied or renamed at `time_ns` (Unix time) or
    // later, as the file system tells. Returns none if asking for all their files would take too long.
    std::function<std::vector<int64_t>(int64_t time_ns, std::vector<int64_t> samples)>
        changed_since;
    // How many samples VerifyChanged() reads at most. After a copy all files have changed, and a run must not read all
    // of a large data set before its first step.
    int64_t most_read = 10'000;
  };

  explicit SampleRecord(Options options);

  // Returns a hash that is never 0 and has 31 bits.
  static uint32_t HashOf(std::span<const std::byte> bytes);

  // Throws ChangedSample if sample `i` had another hash before.
  void Check(int64_t i, uint32_t hash) const;
  // Remembers the hash of sample `i`, unless it has one.
  void Keep(int64_t i, uint32_t hash);

  // Returns the samples that have another hash in `hashes`; 0 in either place says nothing.
  std::vector<int64_t> Differing(std::span<const uint32_t> hashes) const;

  // Returns the name of sample `i` for messages.
  std::string NameOf(int64_t i) const { return options_.name_of(i); }
  const std::string& part() const { return options_.part; }
  int64_t size() const { return options_.samples; }
  // Returns whether a hash was added since the last call of TakeNews().
  bool TakeNews();
  // Returns the hash of each sample; 0: the sample was not read yet.
  std::vector<uint32_t> hashes() const;
  // Sets the hashes to `hashes`, as far as these are not 0.
  void Restore(std::span<const uint32_t> hashes);

  // Reads the samples again whose files have changed at `time_ns` or later, at most Options::most_read of them. Of
  // several ranks, `rank` of `ranks` reads its share. Throws ChangedSample, and any Error of Options::read.
  void VerifyChanged(int64_t time_ns, int rank, int ranks) const;

 private:
  Options options_;
  std::vector<std::atomic<uint32_t>> hashes_;
  std::atomic<bool> has_news_ = false;
};

// Computes Options::changed_since for samples with a file each, whose names `file_of` returns. Returns none if there are
// more than 20,000 samples: asking for the time of a file takes 1 to 6 us.
std::vector<int64_t> ChangedFiles(int64_t time_ns, const std::vector<int64_t>& samples,
                                  const std::function<std::string(int64_t i)>& file_of);

}  // namespace lockstep
