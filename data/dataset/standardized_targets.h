// StandardizedTargets: a data set of numbers to learn, with each column less its mean and divided by its standard deviation.
//
// A model whose outputs begin near zero then learns targets of any unit, and a loss of 1 is that of a model that always
// says the mean. spec() has both, for whoever shows numbers to the user.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// The mean and the standard deviation of each column of targets. The deviation is the population's, and 1 for a
// constant column.
struct TargetMoments {
  std::vector<double> mean;
  std::vector<double> std;
};

// Reads all targets once. Throws what `dataset` throws.
TargetMoments MomentsOfTargets(const Dataset& dataset);

class StandardizedTargets : public WrappedDataset {
 public:
  // `whole` has one target for each of the moments.
  StandardizedTargets(std::shared_ptr<const Dataset> whole, TargetMoments moments);

  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override;
  void ReadTarget(int64_t index, std::byte* target) const override;
  int64_t samples_at_once() const override { return whole_.samples_at_once(); }

 private:
  // `count` samples' targets.
  void Standardize(std::byte* targets, int64_t count) const;

  std::shared_ptr<const Dataset> owned_;
  SampleSpec spec_;
};

}  // namespace lockstep
