// SkipBad: a data set in which another sample stands for each one that cannot be read.
//
// Promise: which sample stands for which depends on the seed, the epoch and the index alone, and it is
// one of this data set. Each bad sample is reported once; with more than `limit` of them, those that
// were only read ahead included, Read() throws.
//
// what can fail -> what the caller sees -> the test that shows it (data/skip_bad_test.cc)
//   more than `limit` samples are bad, or every one that was tried -> Error (kData) with the last one's
//     reason -> SkipBad.ThrowsBeyondTheLimit
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace lockstep {

class SkipBad : public Dataset {
 public:
  SkipBad(std::shared_ptr<const Dataset> whole, int64_t limit, uint64_t seed);
  ~SkipBad() override;

  int64_t size() const override { return whole_->size(); }
  const SampleSpec& spec() const override { return whole_->spec(); }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  std::shared_ptr<const Dataset> Plain() const override;
  int64_t NumberInFiles(int64_t index) const override { return whole_->NumberInFiles(index); }

  std::vector<std::string> TakeReports() const override;
  ReadTimes times() const override { return whole_->times(); }
  std::string Fingerprint() const override { return whole_->Fingerprint(); }

 private:
  struct Reports;
  SkipBad(std::shared_ptr<const Dataset> whole, std::shared_ptr<Reports> reports);

  std::shared_ptr<const Dataset> whole_;
  std::shared_ptr<Reports> reports_;  // Plain()'s, too
};

}  // namespace lockstep
