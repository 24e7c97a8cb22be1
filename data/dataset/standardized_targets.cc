#include "data/dataset/standardized_targets.h"

#include <cstring>
#include <utility>

#include "base/moments.h"

namespace lockstep {

TargetMoments MomentsOfTargets(const Dataset& dataset) {
  std::vector<Moments> columns(dataset.spec().classes);
  std::vector<float> target(columns.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.ReadTarget(i, reinterpret_cast<std::byte*>(target.data()));
    for (size_t column = 0; column < columns.size(); ++column) columns[column].Add(target[column]);
  }
  TargetMoments moments;
  for (const Moments& column : columns) {
    moments.mean.push_back(column.mean());
    moments.std.push_back(column.std());
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
