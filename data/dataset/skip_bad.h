// SkipBad: a data set that wraps another data set, and replaces each bad sample (one that cannot be read) by another
// sample.
//
// Promise: the choice of the replacement depends only on the seed, the epoch, the index and which samples are bad, and
// the replacement is a sample of the same data set. Each bad sample that was replaced is reported once. As soon as more
// than `limit` bad samples were found, Read() throws for every bad sample. A bad sample counts as soon as it is read,
// even if training never uses the micro-batch for which it was read.
//
// what can fail -> what the caller sees -> the test that shows it (data/dataset/skip_bad_test.cc)
//   more than `limit` samples are bad, or all replacements that were tried are bad -> Error (kData) with the reason of
//     the last bad sample -> SkipBad.ThrowsBeyondTheLimit, SkipBad.ThrowsWhereNothingIsGood
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset/dataset.h"

namespace lockstep {

class SkipBad : public WrappedDataset {
 public:
  SkipBad(std::shared_ptr<const Dataset> whole, int64_t limit, uint64_t seed);

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override;
  int64_t samples_at_once() const override { return whole_.samples_at_once(); }
  std::vector<std::string> TakeReports() const override;

 private:
  void Report(int64_t index, const Error& error) const;

  std::shared_ptr<const Dataset> owned_;
  int64_t limit_;
  uint64_t seed_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::set<int64_t> bad_;
  mutable std::vector<std::string> untold_;
};

}  // namespace lockstep
