#include "ops/update/fused_update.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

float* Floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

UpdateScalars Pointers(const FusedUpdate::Scalars& scalars) {
  return {.lr = Floats(scalars.lr),
          .updates = Floats(scalars.updates),
          .skip = Floats(scalars.skip),
          .grad_scale = Floats(scalars.grad_scale)};
}

}  // namespace

FusedUpdate::FusedUpdate(std::vector<Parameter> parameters) : kept_(std::move(parameters)) {
  std::vector<UpdateChunk> chunks;
  std::vector<int64_t> ends;
  FloatType rounded_type = FloatType::kBFloat16;
  const auto from = [](float* pointer, int64_t begin) {
    return pointer == nullptr ? nullptr : pointer + begin;
  };
  for (const Parameter& of : kept_) {
    const int64_t gradient = of.gradient.storage_offset();
    const int32_t memory = IndexOf(of.gradient.storage());
    char* rounded = nullptr;
    if (of.rounded.defined()) {
      rounded = static_cast<char*>(of.rounded.mutable_data_ptr());
      rounded_type = TypeOf(of.rounded);
    }
    const int64_t elements = of.parameter.numel();
    for (int64_t begin = 0; begin < elements; begin += kUpdateChunk) {
      chunks.push_back(
          {.parameter = from(Floats(of.parameter), begin),
           .gradient = gradient + begin,
           .first = from(Floats(of.first), begin),
           .second = from(Floats(of.second), begin),
           .rounded = rounded == nullptr ? nullptr : rounded + begin * of.rounded.element_size(),
           .elements = std::min(kUpdateChunk, elements - begin),
           .memory = memory,
           .index = static_cast<int32_t>(ends.size())});
    }
    ends.push_back(static_cast<int64_t>(chunks.size()));
  }
  const at::Device device = kept_.front().parameter.device();
  const auto bytes = static_cast<int64_t>(chunks.size() * sizeof(UpdateChunk));
  const at::Tensor on_host = at::empty({bytes}, at::kByte);
  std::memcpy(on_host.mutable_data_ptr(), chunks.data(), bytes);
  chunks_ = on_host.to(device);
  ends_ = at::tensor(ends, at::kLong).to(device);
  table_ = {.chunks = reinterpret_cast<const UpdateChunk*>(chunks_.const_data_ptr<uint8_t>()),
            .count = static_cast<int64_t>(chunks.size()),
            .ends = ends_.const_data_ptr<int64_t>(),
            .parameters = static_cast<int64_t>(ends.size()),
            .rounded = rounded_type};
}

// Returns the index of a gradient's storage in memories_, and adds the storage if it is new.
int32_t FusedUpdate::IndexOf(const at::Storage& memory) {
  const auto known = std::ranges::find_if(
      memories_, [&](const at::Storage& of) { return of.is_alias_of(memory); });
  const auto index = static_cast<int32_t>(known - memories_.begin());
  if (known == memories_.end()) memories_.push_back(memory);
  if (memories_.size() > kMostGradientMemories) {
    throw BugError("gradients to update lie in more than {} tensors", kMostGradientMemories);
  }
  return index;
}

UpdateGradients FusedUpdate::Gradients() const {
  UpdateGradients gradients = {};
  for (size_t i = 0; i < memories_.size(); ++i) {
    gradients.memories[i] = static_cast<const float*>(memories_[i].data());
  }
  return gradients;
}

at::Tensor FusedUpdate::NewNorms() const {
  return at::empty({NormFloats(table_)}, chunks_.options().dtype(at::kFloat));
}

void FusedUpdate::Adam(const AdamRules& rules, const Scalars& scalars) const {
  Launch(chunks_, [&](cudaStream_t stream) {
    LaunchAdam(table_, Gradients(), rules, Pointers(scalars), stream);
  });
}

void FusedUpdate::Sgd(const SgdRules& rules, const Scalars& scalars) const {
  Launch(chunks_, [&](cudaStream_t stream) {
    LaunchSgd(table_, Gradients(), rules, Pointers(scalars), stream);
  });
}

void FusedUpdate::Lamb(const LambRules& rules, const Scalars& scalars) const {
  const at::Tensor norms = NewNorms();
  Launch(chunks_, [&](cudaStream_t stream) {
    LaunchLamb(table_, Gradients(), rules, Pointers(scalars), Floats(norms), stream);
  });
}

void FusedUpdate::Lars(const LarsRules& rules, const Scalars& scalars) const {
  const at::Tensor norms = NewNorms();
  Launch(chunks_, [&](cudaStream_t stream) {
    LaunchLars(table_, Gradients(), rules, Pointers(scalars), Floats(norms), stream);
  });
}

}  // namespace lockstep::ops
