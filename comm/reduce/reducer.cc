#include "comm/reduce/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/memory_scope.h"
#include "base/tensor/gradient_memory.h"
#include "base/tensor/libtorch_versions.h"
#include "base/tensor/range.h"

namespace lockstep {

struct Reducer::Slot {
  std::string name;
  at::Tensor parameter;
  size_t bucket = 0;
  int64_t offset = 0;  // the index of the gradient's first element in the bucket
  // The AccumulateGrad node of the parameter. Autograd has only a weak reference to the node, so this pointer keeps the
  // node and its hook alive.
  GradientAccumulator accumulator;
  uintptr_t hook = 0;
  unsigned before_addition = 0;  // the hook that runs before autograd adds a gradient
  c10::intrusive_ptr<GradientMemory> memory;
  bool has_gradient = false;  // whether a gradient has arrived since Begin()
  bool counted = false;       // whether Bucket::missing has counted the gradient in this step
};

struct Reducer::Bucket {
  at::ScalarType dtype = at::kFloat;
  int64_t elements = 0;
  int64_t first_gradient = 0;  // the elements before this index hold the scalars
  std::vector<size_t> slots;
  Label label;
  at::Tensor flat;               // the gradients
  bool is_lent = false;          // whether flat's memory is freed between steps (invariant 8)
  bool is_ready = false;         // whether MakeReady() was called since Begin()
  std::vector<at::Tensor> gaps;  // if is_lent: the parts of flat that belong to no gradient
  at::Tensor wire;               // the gradients in reduce_dtype; undefined without reduce_dtype
  at::Tensor parameters;         // with shard: the parameters, in the layout of flat
  size_t missing = 0;            // how many gradients the last backward has yet to compute
  bool under_way = false;
  Work work;
};

namespace {

// In a bucket, each gradient begins at a multiple of this number of bytes, so that kernels can load several elements at
// once.
constexpr int64_t kAlignmentBytes = 64;

int64_t AlignmentOf(at::ScalarType dtype) {
  return kAlignmentBytes / static_cast<int64_t>(c10::elementSize(dtype));
}

// Returns a view of `flat` from element `offset` on with the parameter's shape. If the parameter is dense, the view
// also has the parameter's strides, so the gradient of a channels-last parameter is channels-last, too.
at::Tensor ViewLike(const at::Tensor& parameter, const at::Tensor& flat, int64_t offset) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset);
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

// Frees the memory of `flat`, and thereby of its views. The views keep their offsets and become usable again after
// TakeMemory().
void GiveMemoryBack(const at::Tensor& flat) {
  flat.storage().set_data_ptr_noswap(at::DataPtr(nullptr, flat.device()));
}

void TakeMemory(const at::Tensor& flat) {
  const MemoryScope scope(MemoryOwner::kGradients);
  const c10::DeviceGuard guard(flat.device());
  const at::Storage& storage = flat.storage();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(storage.nbytes()));
}

// Returns a text such as "fc.weight, fc.bias and 54 more", of about `limit` bytes.
std::string NamesText(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && text.size() + names[i].size() > limit) {
      return text + fmt::format(" and {} more", names.size() - i);
    }
    text += (i > 0 ? ", " : "") + names[i];
  }
  return text;
}

}  // namespace

Reducer::Reducer(const std::vector<NamedTensor>& parameters, Communicator& communicator,
                 const ReducerOptions& options)
    : communicator_(communicator),
      options_(options),
      own_scalars_(options.shard || options.reduce_dtype.has_value()),
      scalars_label_(communicator.MakeLabel("the step's scalars")),
      norm_label_(communicator.MakeLabel("the gradient's norm")),
      used_label_(communicator.MakeLabel("which parameters got gradients")) {
  if (parameters.empty()) throw UsageError("the model has no parameters that require a gradient");
  for (const auto& [name, tensor] : parameters) {
    const auto make_ready = [this, i = slots_.size()] { MakeReady(buckets_[slots_[i].bucket]); };
    slots_.push_back({.name = name,
                      .parameter = tensor,
                      .memory = c10::make_intrusive<GradientMemory>(make_ready)});
  }

  std::vector<int64_t> reverse(slots_.size());
  std::iota(reverse.rbegin(), reverse.rend(), int64_t{0});
  FillBuckets(reverse);
  PointGradientsIntoBuckets();
  if (options.missing_gradient == MissingGradient::kZero) {
    used_ = at::zeros({std::ssize(slots_)}, scalars_.options());
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.before_addition = slot.parameter.register_hook([this, i](const at::Tensor& gradient) {
      // If an operation has written the gradient itself, `gradient` is undefined.
      if (gradient.defined()) ZeroUnset(slots_[i]);
    });
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
  for (Slot& slot : slots_) {
    slot.accumulator->del_post_hook(slot.hook);
    slot.parameter.remove_hook(slot.before_addition);
    // The gradient is dropped, because it may have no memory, and its GradientMemory would call this destroyed Reducer
    // to get memory.
    slot.parameter.mutable_grad() = at::Tensor();
  }
}

// ---- Layout -------------------------------------------------------------------------------------

void Reducer::FillBuckets(const std::vector<int64_t>& order) {
  const MemoryScope scope(MemoryOwner::kGradients);
  buckets_.clear();
  buckets_.push_back({.first_gradient = RoundUp(kScalars, AlignmentOf(at::kFloat))});
  buckets_[0].elements = buckets_[0].first_gradient;
  std::map<at::ScalarType, size_t> open{{at::kFloat, 0}};
  for (const int64_t index : order) {
    Slot& slot = slots_[index];
    const at::ScalarType dtype = slot.parameter.scalar_type();
    const int64_t elements = RoundUp(slot.parameter.numel(), AlignmentOf(dtype));
    const auto [bucket_of_dtype, is_new] = open.try_emplace(dtype, buckets_.size());
    size_t& bucket = bucket_of_dtype->second;
    if (!is_new && !buckets_[bucket].slots.empty()) {
      const int64_t limit = bucket == 0 ? options_.first_bucket_bytes : options_.bucket_bytes;
      const int64_t bytes = (buckets_[bucket].elements + elements) * slot.parameter.element_size();
      if (bytes > limit) bucket = buckets_.size();
    }
    if (bucket == buckets_.size()) buckets_.push_back({.dtype = dtype});
    slot.bucket = bucket;
    slot.offset = buckets_[bucket].elements;
    buckets_[bucket].slots.push_back(index);
    buckets_[bucket].elements += elements;
  }

  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    bucket.elements =
        RoundUp(bucket.elements, AlignmentOf(bucket.dtype) * communicator_.world_size());
    bucket.flat = communicator_.Allocate(bucket.elements, bucket.dtype);
    if (options_.reduce_dtype && bucket.dtype == at::kFloat) {
      bucket.wire = communicator_.Allocate(bucket.elements, *options_.reduce_dtype);
    }
    // Bucket 0 keeps its memory, because it may hold the scalars. With several ranks all buckets keep their memory: the
    // communicator may have registered the memory's address, and if a bucket could not be allocated in a step, the
    // other ranks would wait for its collective. Only a storage of LibTorch's allocators is resizable, and only such a
    // storage can be allocated again.
    bucket.is_lent = i > 0 && communicator_.world_size() == 1 && bucket.flat.storage().resizable();
    if (bucket.is_lent) bucket.gaps = GapsOf(bucket);
    std::vector<std::string> names;
    for (const size_t slot : bucket.slots) names.push_back(slots_[slot].name);
    bucket.label = communicator_.MakeLabel(
        fmt::format("bucket {}: {}", i, names.empty() ? "scalars" : NamesText(names, 120)));
  }
}

std::vector<at::Tensor> Reducer::GapsOf(const Bucket& bucket) const {
  std::vector<at::Tensor> gaps;
  for (size_t i = 0; i < bucket.slots.size(); ++i) {
    const Slot& slot = slots_[bucket.slots[i]];
    const int64_t begin = slot.offset + slot.parameter.numel();
    const bool is_last = i + 1 == bucket.slots.size();
    const int64_t end = is_last ? bucket.elements : slots_[bucket.slots[i + 1]].offset;
    if (begin < end) gaps.push_back(bucket.flat.narrow(0, begin, end - begin));
  }
  return gaps;
}

// Turns the gradients and the scalars into views of the buckets' memory. Gradients and scalars that exist already keep
// their values.
void Reducer::PointGradientsIntoBuckets() {
  const at::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    at::Tensor view = ViewLike(slot.parameter, buckets_[slot.bucket].flat, slot.offset);
    if (slot.parameter.grad().defined()) view.copy_(slot.parameter.grad());
    slot.memory->AttachTo(view);
    slot.parameter.mutable_grad() = std::move(view);
  }
  if (own_scalars_) {
    if (!scalars_.defined()) scalars_ = at::zeros({kScalars}, buckets_[0].flat.options());
    return;
  }
  const at::Tensor scalars = buckets_[0].flat.narrow(0, 0, kScalars);
  if (scalars_.defined()) scalars.copy_(scalars_);
  scalars_ = scalars;
}

void Reducer::SettleLayout() { SettleLayout(AgreedOrder()); }

void Reducer::SettleLayout(const std::vector<int64_t>& order) {
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  std::vector<int64_t> all(slots_.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  if (sorted != all) {
    throw CheckpointError("an order of {} parameters is none of this model's {}", order.size(),
                          slots_.size());
  }
  order_ = order;
  FillBuckets(order);  // the gradients keep their old memory until they have been copied
  PointGradientsIntoBuckets();
  settled_ = true;
  arrivals_.clear();
  MakeStages();
  ListSlices();
}

std::vector<int64_t> Reducer::AgreedOrder() {
  // Parameters whose gradient has not arrived come last, in the reverse order of the parameters.
  std::vector<int64_t> order(arrivals_.begin(), arrivals_.end());
  std::vector<bool> arrived(slots_.size());
  for (const size_t slot : arrivals_) arrived[slot] = true;
  for (size_t i = slots_.size(); i-- > 0;) {
    if (!arrived[i]) order.push_back(static_cast<int64_t>(i));
  }
  const at::Device device = slots_.front().parameter.device();
  if (device.is_meta()) return order;  // tensors on META have no values to exchange

  const Label label = communicator_.MakeLabel("order of the buckets");
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
  const at::Tensor seen = at::empty({communicator_.world_size()}, options);
  communicator_
      .AllGather(seen, at::full({1}, static_cast<int64_t>(arrivals_.size()), options), label)
      .Wait();
  const auto best = static_cast<int>(seen.argmax().item<int64_t>());
  const at::Tensor agreed = at::tensor(order, at::kLong).to(device);
  communicator_.Broadcast(agreed, best, label).Wait();
  const at::Tensor on_host = agreed.cpu();
  const auto* first = on_host.const_data_ptr<int64_t>();
  return {first, first + on_host.numel()};
}

void Reducer::MakeStages() {
  stages_.clear();
  size_t bytes = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (stages_.empty() || bytes >= kStageBytes ||
        i - stages_.back().first_bucket == kMostStageBuckets) {
      stages_.push_back({.first_bucket = i});
      bytes = 0;
    }
    bytes += buckets_[i].flat.nbytes();
    stages_.back().last_bucket = i;
    std::vector<Shard> shards = ShardsOf(buckets_[i]);
    std::move(shards.begin(), shards.end(), std::back_inserter(stages_.back().shards));
  }
}

// Returns this rank's shards of a bucket. With `shard`, also moves the bucket's parameters into one buffer, so that one
// all-gather can gather them.
std::vector<Shard> Reducer::ShardsOf(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  std::vector<Shard> shards;
  if (options_.shard) {
    const MemoryScope scope(MemoryOwner::kParameters);
    bucket.parameters = communicator_.Allocate(bucket.elements, bucket.dtype);
  }
  const int64_t slice = bucket.elements / communicator_.world_size();
  const int64_t slice_begin = communicator_.rank() * slice;
  for (const size_t index : bucket.slots) {
    Slot& slot = slots_[index];
    if (!options_.shard) {
      shards.push_back({.name = slot.name,
                        .index = static_cast<int64_t>(index),
                        .dimensions = slot.parameter.dim(),
                        .parameter = slot.parameter.detach(),
                        .gradient = slot.parameter.grad()});
      continue;
    }
    const at::Tensor view = ViewLike(slot.parameter, bucket.parameters, slot.offset);
    view.copy_(slot.parameter);
    slot.parameter.set_data(view);
    const int64_t begin = std::max(slot.offset, slice_begin);
    const int64_t end = std::min(slot.offset + slot.parameter.numel(), slice_begin + slice);
    if (begin >= end) continue;
    shards.push_back({.name = slot.name,
                      .index = static_cast<int64_t>(index),
                      .dimensions = slot.parameter.dim(),
                      .parameter = bucket.parameters.narrow(0, begin, end - begin),
                      .gradient = bucket.flat.narrow(0, begin, end - begin),
                      .whole = slot.parameter.detach(),
                      .begin = begin - slot.offset});
  }
  return shards;
}

void Reducer::ListSlices() {
  slices_.clear();
  std::vector<int64_t> places;
  all_slices_ = 0;
  for (const Bucket& bucket : buckets_) {
    const int64_t slice = bucket.elements / communicator_.world_size();
    for (int rank = 0; rank < communicator_.world_size(); ++rank) {
      const int64_t begin = std::max(rank * slice, bucket.first_gradient);
      const int64_t end = (rank + 1) * slice;
      if (begin == end) continue;
      const int64_t place = all_slices_++;
      if (options_.shard && rank != communicator_.rank()) continue;
      slices_.push_back(bucket.flat.narrow(0, begin, end - begin));
      places.push_back(place);
    }
  }
  places_ = at::tensor(places, at::kLong).to(scalars_.device());
}

std::vector<at::Tensor> Reducer::GradientMemories() const {
  std::vector<at::Tensor> memories{scalars_, used_};
  for (const Bucket& bucket : buckets_) {
    memories.push_back(bucket.flat);
    memories.push_back(bucket.wire);
  }
  return memories;
}

at::Tensor Reducer::OwnSlice(const at::Tensor& flat) const {
  const int64_t slice = flat.numel() / communicator_.world_size();
  return flat.narrow(0, communicator_.rank() * slice, slice);
}

// ---- A step -------------------------------------------------------------------------------------

void Reducer::Begin() {
  ReleaseGradients();
  for (Slot& slot : slots_) {
    slot.has_gradient = slot.counted = false;
    slot.memory->Begin();
  }
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slots.size();
    bucket.is_ready = false;
  }
  MakeReady(buckets_[0]);
  arrivals_.clear();
  reducing_ = false;
  saw_gradient_ = false;
  sent_used_ = false;
  launched_ = 0;
}

// Allocates a bucket's memory if it was freed, and sets to zero the gradients for which GradientMemory::IsToBeZero() is
// true.
void Reducer::MakeReady(Bucket& bucket) {
  if (bucket.is_ready) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> zeros;
  for (const size_t index : bucket.slots) {
    const Slot& slot = slots_[index];
    if (slot.memory->IsToBeZero()) zeros.push_back(slot.parameter.grad());
  }
  if (zeros.size() == bucket.slots.size()) {
    zeros = {bucket.flat};
  } else {
    zeros.insert(zeros.end(), bucket.gaps.begin(), bucket.gaps.end());
  }
  if (&bucket == &buckets_[0]) zeros.push_back(scalars_);
  if (bucket.is_lent) TakeMemory(bucket.flat);
  if (!zeros.empty()) at::_foreach_zero_(zeros);
  bucket.is_ready = true;
}

void Reducer::ReleaseGradients() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.is_lent) GiveMemoryBack(bucket.flat);
  }
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
  if (std::exchange(slot.counted, true)) {
    throw UsageError(
        "the gradient of {} came twice in one backward: a parameter of a block that goes through "
        "Checkpointed() must be used in no other place",
        slot.name);
  }
  if (!settled_) arrivals_.push_back(index);
  --buckets_[slot.bucket].missing;
  LaunchFullBuckets();
}

void Reducer::LaunchFullBuckets() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) {
    if (launched_ == 0 && own_scalars_) {
      scalars_work_ = communicator_.AllReduceSum(scalars_, scalars_label_);
    }
    Launch(buckets_[launched_]);
    ++launched_;
  }
  if (launched_ == buckets_.size()) SendUsed();
}

void Reducer::SendUsed() {
  if (!used_.defined() || std::exchange(sent_used_, true)) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> got;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].has_gradient) got.push_back(used_[static_cast<int64_t>(i)]);
  }
  used_.zero_();
  if (!got.empty()) at::_foreach_add_(got, 1);
  used_work_ = communicator_.AllReduceSum(used_, used_label_);
}

void Reducer::ZeroUnset(Slot& slot) {
  const at::NoGradGuard no_grad;
  slot.memory->ZeroIfUnset(slot.parameter.grad());
}

void Reducer::Launch(Bucket& bucket) {
  const Range exchange("exchange", Range::Of::kStep);
  const Range range(fmt::format("bucket {}", &bucket - buckets_.data()), Range::Of::kStep);
  for (const size_t slot : bucket.slots) ZeroUnset(slots_[slot]);
  const at::Tensor& sent = bucket.wire.defined() ? bucket.wire : bucket.flat;
  if (bucket.wire.defined()) bucket.wire.copy_(bucket.flat);
  bucket.work = sharding() ? communicator_.ReduceScatterSum(OwnSlice(sent), sent, bucket.label)
                           : communicator_.AllReduceSum(sent, bucket.label);
  bucket.under_way = true;
}

void Reducer::Wait() {
  for (size_t i = 0; i < buckets_.size(); ++i) WaitForBucket(i);
}

void Reducer::Wait(size_t stage) {
  for (size_t i = stages_[stage].first_bucket; i <= stages_[stage].last_bucket; ++i) {
    WaitForBucket(i);
  }
}

void Reducer::GiveUp() {
  // If there is only one rank, it skips the collectives, because ReduceNow() would allocate memory for the gradients
  // that have not arrived, and the rank may be giving up because memory has run out.
  if (communicator_.world_size() > 1) {
    ReduceNow();
    Wait();
  }
  ReleaseGradients();
}

void Reducer::Abandon() {
  scalars_work_ = Work();
  used_work_ = Work();
  for (Bucket& bucket : buckets_) {
    bucket.work = Work();
    bucket.under_way = false;
  }
}

void Reducer::WaitForBucket(size_t index) {
  if (index == 0) {
    scalars_work_.Wait();
    used_work_.Wait();
  }
  Bucket& bucket = buckets_[index];
  if (!std::exchange(bucket.under_way, false)) return;
  bucket.work.Wait();
  if (!bucket.wire.defined()) return;
  if (sharding()) {
    OwnSlice(bucket.flat).copy_(OwnSlice(bucket.wire));
  } else {
    bucket.flat.copy_(bucket.wire);
  }
}

void Reducer::Finish() {
  // Launches the buckets that the last backward has not launched, because not all of their gradients arrived.
  ReduceNow();
  if (!saw_gradient_ || options_.missing_gradient == MissingGradient::kZero) return;
  const std::string names = NamesWithoutGradient();
  if (names.empty()) return;
  throw UsageError(
      "no gradient for {}: use them in the model's output, set requires_grad to false, or set "
      "ddp.missing_gradient: ZERO",
      names);
}

std::string Reducer::NamesWithoutGradient() const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (!slot.has_gradient) names.push_back(slot.name);
  }
  if (names.empty()) return "";
  return fmt::format("{} of {} parameters ({})", names.size(), slots_.size(),
                     NamesText(names, 200));
}

// ---- After a step -------------------------------------------------------------------------------

at::Tensor Reducer::Norm() {
  std::vector<at::Tensor> norms = at::_foreach_norm(slices_);
  for (at::Tensor& norm : norms) norm = norm.to(at::kFloat);
  if (!options_.shard) return at::linalg_vector_norm(at::stack(norms));
  const at::Tensor all = at::zeros({all_slices_}, scalars_.options());
  if (!norms.empty()) all.index_copy_(0, places_, at::stack(norms));
  communicator_.AllReduceSum(all, norm_label_).Wait();
  return at::linalg_vector_norm(all);
}

void Reducer::GatherParameters(size_t stage) {
  if (!options_.shard) return;
  for (size_t i = stages_[stage].first_bucket; i <= stages_[stage].last_bucket; ++i) {
    Bucket& bucket = buckets_[i];
    bucket.work =
        communicator_.AllGather(bucket.parameters, OwnSlice(bucket.parameters), bucket.label);
  }
}

void Reducer::WaitForParameters() {
  if (!options_.shard) return;
  for (Bucket& bucket : buckets_) bucket.work.Wait();
}

void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors, Communicator& communicator) {
  // The tensors of each dtype are broadcast in groups of at least this size; only the last group may be smaller. A
  // collective for each tensor would take longer to start than to run. A single collective for all tensors would need a
  // copy of all tensors at once.
  constexpr int64_t kGroupBytes = int64_t{64} << 20;
  const at::NoGradGuard no_grad;
  const Label label = communicator.MakeLabel("rank 0's values");
  std::map<at::ScalarType, std::vector<at::Tensor>> groups;
  const auto send = [&](std::vector<at::Tensor>& group) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& tensor : group) flat.push_back(tensor.reshape({-1}));
    const at::Tensor sent = at::cat(flat);
    communicator.Broadcast(sent, 0, label).Wait();
    int64_t offset = 0;
    for (const at::Tensor& tensor : group) {
      tensor.copy_(sent.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
    group.clear();
  };
  std::map<at::ScalarType, int64_t> bytes;
  for (const NamedTensor& named : tensors) {
    const at::ScalarType dtype = named.tensor.scalar_type();
    groups[dtype].push_back(named.tensor.detach());
    bytes[dtype] += static_cast<int64_t>(named.tensor.nbytes());
    if (bytes[dtype] < kGroupBytes) continue;
    send(groups[dtype]);
    bytes[dtype] = 0;
  }
  for (auto& [dtype, group] : groups) {
    if (!group.empty()) send(group);
  }
}

void CheckSameOnAllRanks(const std::vector<NamedTensor>& tensors, Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  // The maximum number of elements that are compared at a time. A run that fills its GPU has no memory for copies of
  // whole tensors.
  constexpr int64_t kPiece = 1 << 22;
  const at::NoGradGuard no_grad;
  const Label label = communicator.MakeLabel("comparison with rank 0's values");
  std::string different;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor values = tensor.detach();
    const at::Tensor flat = values.is_non_overlapping_and_dense()
                                ? values.as_strided({values.numel()}, {1})
                                : values.reshape(-1);
    for (const at::Tensor& own : flat.split(kPiece)) {
      const at::Tensor rank_zeros = own.clone();
      communicator.Broadcast(rank_zeros, 0, label).Wait();
      // The bytes are compared, because a NaN is not equal to itself.
      const bool same = at::equal(own.view(at::kByte), rank_zeros.view(at::kByte));
      if (!same && different.empty()) different = name;
    }
  }
  if (different.empty()) return;
  throw BugError("{} differs from rank 0's", different);
}

}  // namespace lockstep
