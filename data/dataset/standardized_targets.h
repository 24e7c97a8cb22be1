// StandardizedTargets: a regression data set whose targets are standardised: (target - mean) / standard deviation, for
// each column of targets.
//
// With standardised targets, a model whose first outputs are near zero can learn targets of any unit, and a model that
// always predicts the mean has a mean squared error of 1. spec() holds the means and deviations, for code that shows
// numbers to the user in the unit of the files.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

// The mean and the standard deviation of each column of targets. The standard deviation is that of the population (the
// sum of squares is divided by the number of samples), or 1 for a constant column.
struct TargetMoments {
  std::vector<double> mean;
  std::vector<double> std;
};

// Returns the mean and the standard deviation of each column of targets. Reads each target once. Throws any exception
// that dataset.ReadTarget() throws.
TargetMoments MomentsOfTargets(const Dataset& dataset);

class StandardizedTargets : public WrappedDataset {
 public:
  // `moments` must have one mean and one standard deviation for each column of the targets of `whole`.
  StandardizedTargets(std::shared_ptr<const Dataset> whole, TargetMoments moments);

  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override;
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override;
  void ReadTarget(int64_t index, std::byte* target) const override;
  int64_t samples_at_once() const override { return whole_.samples_at_once(); }

 private:
  // Standardises the targets of `count` samples in place.
  void Standardize(std::byte* targets, int64_t count) const;

  std::shared_ptr<const Dataset> owned_;
  SampleSpec spec_;
};

}  // namespace lockstep
