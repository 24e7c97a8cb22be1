#include "comm/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lockstep {

struct Reducer::Slot {
  std::string name;
  at::Tensor parameter;
  size_t bucket = 0;
  int64_t offset = 0;  // in elements of the bucket
  // Autograd keeps the accumulator only weakly; the hook lives as long as it does.
  std::shared_ptr<torch::autograd::Node> accumulator;
  uintptr_t hook = 0;
  bool has_gradient = false;  // since Begin()
};

struct Reducer::Bucket {
  at::ScalarType dtype = at::kFloat;
  int64_t elements = 0;
  int64_t first_gradient = 0;  // elements before it are scalars
  std::vector<size_t> slots;
  at::Tensor flat;
  size_t missing = 0;  // gradients still to come in the backward that reduces
  Work work;
};

namespace {

// Gradients begin at multiples of this, for wide loads in kernels.
constexpr int64_t kAlignmentBytes = 64;

int64_t Aligned(int64_t elements, int64_t element_bytes) {
  const int64_t multiple = kAlignmentBytes / element_bytes;
  return (elements + multiple - 1) / multiple * multiple;
}

// The part of `flat` from `offset` on, with the parameter's shape and, where it fills its memory,
// its strides (channels last stays channels last).
at::Tensor ViewLike(const at::Tensor& parameter, const at::Tensor& flat, int64_t offset) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset);
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

}  // namespace

Reducer::Reducer(const std::vector<NamedTensor>& parameters, Communicator& communicator,
                 const ReducerOptions& options)
    : communicator_(communicator), options_(options) {
  if (parameters.empty()) throw UsageError("the model has no parameters that require a gradient");

  Bucket first;
  first.first_gradient = first.elements = Aligned(kScalars, sizeof(float));
  buckets_.push_back(std::move(first));
  std::map<at::ScalarType, size_t> open{{at::kFloat, 0}};
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const at::Tensor& tensor = parameter->tensor;
    const int64_t element_bytes = tensor.element_size();
    const int64_t elements = Aligned(tensor.numel(), element_bytes);
    const auto [bucket_of_dtype, is_new] = open.try_emplace(tensor.scalar_type(), buckets_.size());
    size_t& bucket = bucket_of_dtype->second;
    if (!is_new && !buckets_[bucket].slots.empty()) {
      const int64_t limit = bucket == 0 ? options.first_bucket_bytes : options.bucket_bytes;
      if ((buckets_[bucket].elements + elements) * element_bytes > limit) bucket = buckets_.size();
    }
    if (bucket == buckets_.size()) buckets_.push_back({.dtype = tensor.scalar_type()});
    buckets_[bucket].slots.push_back(slots_.size());
    slots_.push_back({.name = parameter->name,
                      .parameter = tensor,
                      .bucket = bucket,
                      .offset = buckets_[bucket].elements});
    buckets_[bucket].elements += elements;
  }

  const at::Device device = parameters.front().tensor.device();
  for (Bucket& bucket : buckets_) {
    bucket.flat = at::zeros({bucket.elements}, at::TensorOptions(device).dtype(bucket.dtype));
    flat_gradients_.push_back(
        bucket.flat.narrow(0, bucket.first_gradient, bucket.elements - bucket.first_gradient));
  }
  scalars_ = buckets_[0].flat.narrow(0, 0, kScalars);

  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.parameter.mutable_grad() =
        ViewLike(slot.parameter, buckets_[slot.bucket].flat, slot.offset);
    slot.accumulator = torch::autograd::impl::grad_accumulator(slot.parameter);
    slot.hook =
        slot.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, i](const torch::autograd::variable_list& outputs,
                      const torch::autograd::variable_list&) {
              OnGradient(i);
              return outputs;
            }));
  }
}

Reducer::~Reducer() {
  for (Slot& slot : slots_) slot.accumulator->del_post_hook(slot.hook);
}

void Reducer::Begin() {
  for (Bucket& bucket : buckets_) {
    bucket.flat.zero_();
    bucket.missing = bucket.slots.size();
  }
  for (Slot& slot : slots_) slot.has_gradient = false;
  reducing_ = false;
  saw_gradient_ = false;
  launched_ = 0;
}

void Reducer::ReduceDuringBackward() {
  reducing_ = true;
  LaunchFullBuckets();
}

void Reducer::ReduceNow() {
  reducing_ = false;
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  LaunchFullBuckets();
}

void Reducer::OnGradient(size_t index) {
  Slot& slot = slots_[index];
  slot.has_gradient = true;
  saw_gradient_ = true;
  if (!reducing_) return;
  --buckets_[slot.bucket].missing;
  LaunchFullBuckets();
}

void Reducer::LaunchFullBuckets() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) {
    buckets_[launched_].work = communicator_.AllReduceSum(buckets_[launched_].flat);
    ++launched_;
  }
}

void Reducer::Wait() {
  for (Bucket& bucket : buckets_) bucket.work.Wait();
}

void Reducer::Finish() {
  // Only gradients that did not come in the last backward are left to send.
  ReduceNow();
  Wait();
  if (!saw_gradient_ || options_.missing_gradient == MissingGradient::kZero) return;
  const std::string names = NamesWithoutGradient();
  if (names.empty()) return;
  throw UsageError(
      "no gradient for {}: use them in the model's output, set requires_grad to false, or set "
      "ddp.missing_gradient: ZERO",
      names);
}

std::string Reducer::NamesWithoutGradient() const {
  constexpr int kNamed = 5;
  std::string names;
  int count = 0;
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    if (slot->has_gradient) continue;
    if (count++ < kNamed) names += (names.empty() ? "" : ", ") + slot->name;
  }
  if (count == 0) return "";
  return fmt::format("{} of {} parameters ({}{})", count, slots_.size(), names,
                     count > kNamed ? ", ..." : "");
}

void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sent;
  std::vector<Work> works;
  for (const NamedTensor& named : tensors) {
    sent.push_back(named.tensor.detach().contiguous());
    works.push_back(communicator.Broadcast(sent.back(), 0));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    works[i].Wait();
    if (!tensors[i].tensor.is_contiguous()) tensors[i].tensor.detach().copy_(sent[i]);
  }
}

void CheckSameOnAllRanks(const std::vector<NamedTensor>& tensors, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::string different;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor own = tensor.detach().contiguous();
    const at::Tensor rank_zeros = own.clone();
    communicator.Broadcast(rank_zeros, 0).Wait();
    // Bytes, because NaN differs from itself.
    const bool same = at::equal(own.view(-1).view(at::kByte), rank_zeros.view(-1).view(at::kByte));
    if (!same && different.empty()) different = name;
  }
  if (different.empty()) return;
  throw BugError("{} differs from rank 0's", different);
}

}  // namespace lockstep
