#include "data/dataset/dataset.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <span>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// Returns {count, shape...}, the shape of a batch of `count` elements.
std::vector<int64_t> BatchShape(int64_t count, const std::vector<int64_t>& shape) {
  std::vector<int64_t> batch{count};
  batch.insert(batch.end(), shape.begin(), shape.end());
  return batch;
}

}  // namespace

int64_t SampleSpec::bytes() const {
  return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

std::vector<int64_t> SampleSpec::target_shape() const {
  switch (task) {
    case Task::kClassification:
      return {};
    case Task::kMultiLabel:
    case Task::kRegression:
      return {classes};
    case Task::kLanguage:
      return shape;
    case Task::kSegmentation:
      return {shape.end() - 2, shape.end()};
  }
  throw BugError("task {}", static_cast<int>(task));
}

at::ScalarType SampleSpec::target_dtype() const {
  switch (task) {
    case Task::kMultiLabel:
    case Task::kRegression:
      return at::kFloat;
    case Task::kClassification:
    case Task::kLanguage:
      return at::kLong;
    case Task::kSegmentation:
      return at::kByte;
  }
  throw BugError("task {}", static_cast<int>(task));
}

int64_t SampleSpec::targets() const { return c10::multiply_integers(target_shape()); }

int64_t SampleSpec::target_bytes() const {
  return targets() * static_cast<int64_t>(c10::elementSize(target_dtype()));
}

at::Tensor EmptyInputs(const SampleSpec& spec, int64_t count, at::TensorOptions where) {
  return at::empty(
      BatchShape(count, spec.shape), where.dtype(spec.dtype),
      spec.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

at::Tensor EmptyTargets(const SampleSpec& spec, int64_t count, at::TensorOptions where) {
  return at::empty(BatchShape(count, spec.target_shape()), where.dtype(spec.target_dtype()));
}

ReadTimes ReadTimes::operator-(const ReadTimes& other) const {
  return {.files = files - other.files,
          .decoding = decoding - other.decoding,
          .resizing = resizing - other.resizing,
          .gpu = gpu - other.gpu};
}

void Dataset::ReadTarget(int64_t index, std::byte* target) const {
  std::vector<std::byte> input(spec().bytes());
  Read(index, /*epoch=*/0, input.data(), target);
}

void Dataset::ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                       std::byte* target) const {
  for (const int64_t index : indices) {
    Read(index, epoch, input, target);
    input += spec().bytes();
    target += spec().target_bytes();
  }
}

Subset::Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices)
    : WrappedDataset(*whole), owned_(std::move(whole)), indices_(std::move(indices)) {}

DataContents Subset::Contents() const {
  DataContents contents = whole_.Contents();
  contents.AddPart("division", std::as_bytes(std::span(indices_)));
  return contents;
}

void Subset::Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const {
  whole_.Read(indices_[index], epoch, input, target);
}

void Subset::ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                      std::byte* target) const {
  std::vector<int64_t> of_whole;
  of_whole.reserve(indices.size());
  for (const int64_t index : indices) of_whole.push_back(indices_[index]);
  whole_.ReadSome(of_whole, epoch, input, target);
}

}  // namespace lockstep
