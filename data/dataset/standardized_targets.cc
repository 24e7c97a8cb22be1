#include "data/dataset/standardized_targets.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace lockstep {

TargetMoments MomentsOfTargets(const Dataset& dataset) {
  const int64_t columns = dataset.spec().classes;
  TargetMoments moments{.mean = std::vector<double>(columns), .std = std::vector<double>(columns)};
  std::vector<float> target(columns);
  // Welford's recurrence (Knuth, The Art of Computer Programming, 4.2.2).
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.ReadTarget(i, reinterpret_cast<std::byte*>(target.data()));
    for (int64_t column = 0; column < columns; ++column) {
      const double apart = target[column] - moments.mean[column];
      moments.mean[column] += apart / static_cast<double>(i + 1);
      moments.std[column] += apart * (target[column] - moments.mean[column]);
    }
  }
  for (double& std : moments.std) {
    std = std::sqrt(std / static_cast<double>(dataset.size()));
    if (!(std > 0)) std = 1;
  }
  return moments;
}

StandardizedTargets::StandardizedTargets(std::shared_ptr<const Dataset> whole,
                                         TargetMoments moments)
    : WrappedDataset(*whole), owned_(std::move(whole)), spec_(whole_.spec()) {
  spec_.target_mean = std::move(moments.mean);
  spec_.target_std = std::move(moments.std);
}

void StandardizedTargets::Read(int64_t index, int64_t epoch, std::byte* input,
                               std::byte* target) const {
  whole_.Read(index, epoch, input, target);
  Standardize(target, 1);
}

void StandardizedTargets::ReadSome(std::span<const int64_t> indices, int64_t epoch,
                                   std::byte* input, std::byte* target) const {
  whole_.ReadSome(indices, epoch, input, target);
  Standardize(target, static_cast<int64_t>(indices.size()));
}

void StandardizedTargets::ReadTarget(int64_t index, std::byte* target) const {
  whole_.ReadTarget(index, target);
  Standardize(target, 1);
}

void StandardizedTargets::Standardize(std::byte* targets, int64_t count) const {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t column = 0; column < spec_.classes; ++column) {
      float number = 0;
      std::memcpy(&number, targets, sizeof(number));
      number = static_cast<float>((number - spec_.target_mean[column]) / spec_.target_std[column]);
      std::memcpy(targets, &number, sizeof(number));
      targets += sizeof(number);
    }
  }
}

}  // namespace lockstep
