// Reducer: the gradients of all ranks, summed while backward is still running.
//
// Promise: after Finish() every parameter's gradient, and scalars(), hold the sum over all ranks of
// what each rank accumulated since Begin(), the same bits on every rank.
//
// Invariants:
//   1. Every parameter's .grad is a view into a flat bucket, from construction on.
//   2. Buckets are filled in reverse order of the parameters, which is about the order in which
//      backward reaches them: the first bucket up to first_bucket_bytes, the others up to
//      bucket_bytes; a parameter that is larger gets a bucket of its own. Each dtype has its own.
//   3. Buckets are reduced in the same order on every rank: bucket i only once bucket i - 1 is
//      under way.
//   4. scalars() lies in bucket 0, so it travels with the first collective of the step and costs
//      none.
//
// A step, in order:
//   1. Begin(): gradients and scalars are zero
//   2. forward and backward of each micro-batch but the last: gradients add up locally
//   3. scalars() gets its values
//   4. ReduceDuringBackward(), then the last backward: each AccumulateGrad's hook counts its bucket
//      down, and a full bucket goes to the communicator. A rank that has no last micro-batch calls
//      ReduceNow() instead
//   5. Finish(): what is under way is waited for (on the GPU: by the current stream, not by the host)
// A rank that cannot go on with the step calls ReduceNow() and Wait(), so that no other waits for it.
//
// what can fail -> what the caller sees -> the test that shows it (comm/reducer_test.cc)
//   a parameter got no gradient on this rank -> Error (kUsage) from Finish(), naming it; with
//     MissingGradient::kZero it counts as zero -> Reducer.NamesParametersWithoutGradient,
//     Reducer.TreatsAMissingGradientAsZeroWhereAsked
//   a collective fails -> Error (kPeer) from Finish() -> see comm/communicator.h
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/named_tensor.h"
#include "comm/communicator.h"

namespace lockstep {

enum class MissingGradient { kError, kZero };

struct ReducerOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  MissingGradient missing_gradient = MissingGradient::kError;
};

class Reducer {
 public:
  static constexpr int64_t kScalars = 4;

  // `parameters`: leaves that require a gradient, all on one device. Keeps a reference to
  // `communicator`.
  Reducer(const std::vector<NamedTensor>& parameters, Communicator& communicator,
          const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void Begin();
  void ReduceDuringBackward();
  void ReduceNow();
  void Wait();
  void Finish();

  // float32 [kScalars], for whatever else a step has to sum over the ranks.
  const at::Tensor& scalars() const { return scalars_; }

  // The buckets' gradients, flat and without scalars(): what a norm is taken of. Gaps are zero.
  const std::vector<at::Tensor>& flat_gradients() const { return flat_gradients_; }

 private:
  struct Slot;  // a parameter's place
  struct Bucket;

  void OnGradient(size_t slot);
  void LaunchFullBuckets();
  std::string NamesWithoutGradient() const;

  Communicator& communicator_;
  ReducerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  at::Tensor scalars_;
  std::vector<at::Tensor> flat_gradients_;

  bool reducing_ = false;      // gradients that arrive now count their bucket down
  bool saw_gradient_ = false;  // since Begin()
  size_t launched_ = 0;        // buckets under way
};

// Gives every rank rank 0's values, in place. Throws Error (kPeer).
void BroadcastFromRankZero(const std::vector<NamedTensor>& tensors, Communicator& communicator);

// Throws Error (kBug) on every rank that does not hold rank 0's bits, with the first tensor's name.
void CheckSameOnAllRanks(const std::vector<NamedTensor>& tensors, Communicator& communicator);

}  // namespace lockstep
