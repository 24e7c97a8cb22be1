// Reducer: sums the gradients of all ranks while backward is still running.
//
// Promise: after Wait(), and until ReleaseGradients(), every parameter's gradient holds the sum over all ranks of the
// gradients that each rank accumulated since Begin(). scalars() holds the sums of the scalars over all ranks. The bits
// are the same on every rank. With `shard`, after SettleLayout(), a rank holds only its part of the sums: the gradients
// of its shards().
//
// Invariants:
//   1. Every parameter's .grad is a view into a flat bucket, from construction on.
//   2. Buckets are filled in the order in which gradients arrive. At first, the gradients are assumed to arrive in the
//      reverse order of the parameters. From SettleLayout() on, the order in which they arrived in an earlier step is
//      used. The first bucket takes up to first_bucket_bytes, the others up to bucket_bytes. A larger parameter gets a
//      bucket of its own. Each dtype has its own buckets.
//   3. Buckets are reduced in the same order on every rank: the reduction of bucket i starts only after that of bucket
//      i - 1.
//   4. scalars() lies in bucket 0, so it travels with the first collective of the step and needs no collective of its
//      own. With `shard` or `reduce_dtype`, however, scalars() is reduced by a separate collective, in float32.
//   5. A bucket has as many equal slices as there are ranks, and slice i is rank i's shard. A value that is computed
//      from all gradients, like their norm, is computed slice by slice in the same order with and without `shard`. A
//      step with `shard` therefore gives the same bits as a step without it, if the communicator's ReduceScatterSum
//      gives the same bits as its AllReduceSum (this is true for MPI).
//   6. The host waits for the device only in SettleLayout(), so a step after it can be captured in a CUDA graph.
//   7. If an operation wrote a gradient itself in the last step, this step does not set that gradient to zero but
//      overwrites it (base/tensor/gradient_memory.h).
//   8. With one rank, the gradients of a bucket take no memory from ReleaseGradients() until the next step computes the
//      bucket's first gradient, so forward's activations can use that memory. There are two exceptions, which keep
//      their memory: bucket 0, and the copies of the gradients in reduce_dtype.
//
// A step, in order:
//   1. Begin(): gradients and scalars count as zero
//   2. forward and backward of each micro-batch except the last: gradients add up locally
//   3. the caller writes the scalars to scalars()
//   4. ReduceDuringBackward(), then the last backward: the hook of each AccumulateGrad node counts the gradients that
//      have arrived, and a bucket whose gradients have all arrived is passed to the communicator. A rank that has no
//      last micro-batch calls ReduceNow() instead
//   5. Finish(): sends the buckets that have not been sent yet
//   6. Wait(): waits for the collectives that are running (on a GPU the current stream waits, and not the host). In the
//      first step the caller then calls SettleLayout(), as soon as it knows that all ranks have
//      reached this point
//   7. Norm(), if the caller needs the norm for the update
//   8. for each stage: Wait(stage), the update of shards(stage), GatherParameters(stage). A stage is a group of
//      successive buckets. It ends as soon as its buckets have kStageBytes together, or are kMostStageBuckets in
//      number; the last stage may be smaller. If the update does not depend on all gradients, the updates of the first
//      stages overlap with the collectives of the last stages. (The collectives of the last stages begin at the end of
//      backward, so they cannot overlap with backward)
//   9. ReleaseGradients()
//  10. WaitForParameters(): with `shard`, waits until this rank has the weights that the other ranks have updated.
//      The collectives that send these weights run while the caller prepares the next step
// A rank that cannot go on with the step calls GiveUp(), so that no other rank waits for it.
//
// what can fail -> what the caller sees -> the test that shows it (comm/reduce/reducer_test.cc)
//   a parameter got no gradient on this rank -> Error (kUsage) from Finish(), naming it; with
//     MissingGradient::kZero it counts as zero, and used() shows it -> ReducerTest.NamesParametersWithoutGradient,
//     ReducerTest.NamesParametersThatSomeRanksLack, ReducerTest.TreatsAMissingGradientAsZeroWhereAsked
//   a gradient comes twice in the last backward -> Error (kUsage) from that backward, naming it
//     -> ReducerTest.NamesAGradientThatComesTwice
//   a collective fails -> Error (kPeer) from Finish() or Wait() -> see comm/communicator.h
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "comm/communicator.h"

namespace lockstep {

enum class MissingGradient { kError, kZero };

struct ReducerOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  MissingGradient missing_gradient = MissingGradient::kError;
  // The type, kHalf or kBFloat16, to which float32 gradients are rounded before they are sent. After the reduction they
  // are converted back to float32.
  std::optional<at::ScalarType> reduce_dtype;
  // Whether each rank updates only 1/world_size of the parameters (ZeRO stage 1, Rajbhandari et al. 2020). Without
  // `shard`, each rank updates all parameters.
  bool shard = false;
};

// A parameter that this rank updates, or with `shard` the part of a parameter that this rank updates.
struct Shard {
  std::string name;        // the name of the parameter
  int64_t index = 0;       // the index of the parameter in the constructor's list
  int64_t dimensions = 0;  // the number of dimensions of the whole parameter
  at::Tensor parameter;    // detached from autograd
  at::Tensor gradient;  // the same shape as `parameter`; its address may change from step to step
  // With `shard`, `parameter` and `gradient` are flat. `whole` is then the whole parameter, and `begin` is the index of
  // the shard's first element in the memory of `whole`.
  at::Tensor whole;
  int64_t begin = 0;
};

class Reducer {
 public:
  static constexpr int64_t kScalars = 6;
  // A stage gets further buckets until it has at least this many bytes, or kMostStageBuckets buckets. With smaller
  // stages there would be more kernel launches, which would take more time than the overlap of updates with collectives
  // saves.
  static constexpr int64_t kStageBytes = int64_t{16} << 20;
  // The maximum number of buckets of a stage. The kernel that updates a stage gets the addresses of the stage's buckets
  // as arguments, and a kernel can have only a limited number of arguments.
  static constexpr size_t kMostStageBuckets = 64;

  // `parameters` are leaf tensors that require a gradient, all on one device. Keeps a reference to `communicator`.
  // Every rank must call this constructor.
  Reducer(const std::vector<NamedTensor>& parameters, Communicator& communicator,
          const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void Begin();
  void ReduceDuringBackward();
  void ReduceNow();
  void Finish();
  void Wait();
  void Wait(size_t stage);

  // Takes part in the remaining collectives of the step, so that the other ranks do not wait for this rank, and
  // releases the gradients. The gradients of this step must not be used.
  void GiveUp();

  // Forgets the collectives that have begun. Must be called if they were captured in a CUDA graph and the capture
  // failed.
  void Abandon();

  // Puts the gradients of the last backward into buckets in their order of arrival. All ranks use the order of the rank
  // on which most gradients arrived. The gradients keep their values. With `shard`, from the next step on a rank has
  // valid gradients only of its own shards. Every rank must call SettleLayout() once, before ReleaseGradients().
  void SettleLayout();

  // Puts the gradients into buckets in `order`, which is the order() of an earlier job. Begin() must not have been
  // called yet. Throws Error (kCheckpoint) if `order` is not a permutation of the parameters.
  void SettleLayout(const std::vector<int64_t>& order);

  // Returns the indices of the parameters in the constructor's list, in the order of the buckets. Must be called only
  // after SettleLayout().
  const std::vector<int64_t>& order() const { return order_; }

  // Returns float32 [kScalars]: further values, such as the loss, that a step sums over the ranks.
  const at::Tensor& scalars() const { return scalars_; }

  // Returns float32 [parameters]: for each parameter of the constructor's list, the number of ranks on which it got a
  // gradient in this step. The values are valid after Wait(). Without MissingGradient::kZero the tensor is undefined.
  const at::Tensor& used() const { return used_; }

  // stages() returns the number of stages, and shards(stage) the shards that this rank updates in a stage. Without
  // `shard` these are all parameters of the stage. Both must be called only after SettleLayout().
  size_t stages() const { return stages_.size(); }
  const std::vector<Shard>& shards(size_t stage) const { return stages_[stage].shards; }

  // Returns the tensors that hold the gradients, their copies in `reduce_dtype`, scalars() and used(). Some of these
  // tensors may be undefined, or may have no memory at the moment.
  std::vector<at::Tensor> GradientMemories() const;

  // Returns the L2 norm of all parameters' gradients as a 0-dimensional float32 tensor. Must be called only after
  // SettleLayout(), and before ReleaseGradients().
  at::Tensor Norm();

  void GatherParameters(size_t stage);
  void WaitForParameters();

  // Releases the memory of the gradients that invariant 8 names. Operations that were enqueued before this call may
  // still read the gradients; later operations may not. Other tensors may use the released memory. The gradients of the
  // next step may have other addresses.
  void ReleaseGradients();

 private:
  struct Slot;  // a parameter and its place in a bucket
  struct Bucket;

  bool sharding() const { return options_.shard && settled_; }
  void FillBuckets(const std::vector<int64_t>& order);
  std::vector<at::Tensor> GapsOf(const Bucket& bucket) const;
  void PointGradientsIntoBuckets();
  std::vector<int64_t> AgreedOrder();
  void MakeStages();
  std::vector<Shard> ShardsOf(Bucket& bucket);
  void WaitForBucket(size_t bucket);
  void ListSlices();
  at::Tensor OwnSlice(const at::Tensor& flat) const;
  void MakeReady(Bucket& bucket);
  void OnGradient(size_t slot);
  void ZeroUnset(Slot& slot);
  void LaunchFullBuckets();
  void SendUsed();
  void Launch(Bucket& bucket);
  std::string NamesWithoutGradient() const;

  Communicator& communicator_;
  ReducerOptions options_;
  bool own_scalars_;         // whether scalars() lies outside bucket 0
  std::vector<Slot> slots_;  // in the order of the parameters
  std::vector<Bucket> buckets_;
  at::Tensor scalars_;
  Work scalars_work_;
  at::Tensor used_;
  Work used_work_;
  bool sent_used_ = false;  // whether used() was sent since Begin()
  Label scalars_label_, norm_label_, used_label_;

  struct Stage {
    size_t first_bucket = 0;
    size_t last_bucket = 0;
    std::vector<Shard> shards;
  };
  std::vector<Stage> stages_;
  std::vector<at::Tensor> slices_;  // flat slices of the gradients whose sums this rank holds
  at::Tensor places_;  // int64: the index of each of slices_ among the slices of all ranks
  int64_t all_slices_ = 0;

  bool settled_ = false;
  std::vector<int64_t> order_;
  bool reducing_ = false;      // whether each gradient that arrives decrements Bucket::missing
  bool saw_gradient_ = false;  // whether a gradient has arrived since Begin()
  size_t launched_ = 0;        // how many buckets have been launched
  // The slots in the order in which their gradients arrived, until the layout is settled.
  std::vector<size_t> arrivals_;
};

// Copies rank 0's values into the tensors of every rank. Throws Error (kPeer) if a collective fails.
void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors, Communicator& communicator);

// Compares the tensors with rank 0's. Throws Error (kBug) on every rank whose tensors differ from rank 0's in any bit.
// The error names the first tensor that differs.
void CheckSameOnAllRanks(const std::vector<NamedTensor>& tensors, Communicator& communicator);

}  // namespace lockstep
