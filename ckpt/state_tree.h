// StateTree: the tensors and values on which the next step depends, each with a name.
//
// Promise: a checkpoint holds everything that is added to the tree, and resuming restores it. Restore() changes nothing
// before it has read all entries and checked their dtypes and shapes.
//
// An entry has one of three kinds:
//   shared  is the same on all ranks; one rank writes it
//   own     belongs to one rank, for example the state of its random number generator. The rank is part of the name
//           in the file: "random.cpu@3". The entry is restored only in a job that has as many ranks as the job that
//           saved the checkpoint, and only if the checkpoint contains the entry (a run that trained on the CPU saved no
//           state of a GPU's generator)
//   piece   is a part of a tensor that the ranks hold together (optimizer.shard), flat, in the order of the whole
//           tensor's memory: "optimizer.exp_avg.fc.weight[0:500]". A tensor that was saved whole or in any pieces
//           can be restored in any other pieces
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/state_tree_test.cc)
//   a name that the checkpoint lacks, a name that the tree lacks, another dtype or shape, a part of a newer version
//     -> Error (kCheckpoint) naming it -> StateTreeTest.NamesWhatDoesNotFit
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"

namespace lockstep {

struct StateEntry {
  enum class Kind { kShared, kOwn, kPiece };

  std::string name;
  Kind kind = Kind::kShared;
  // Returns the tensor to save. It may be on any device, and its values may change later.
  std::function<at::Tensor()> get;
  // Restores the value from a tensor on the CPU that has the same shape and dtype as the tensor of get().
  std::function<void(const at::Tensor&)> set;
  // Only for kShared: called instead of set() if the checkpoint does not have this entry, because an older program
  // wrote the checkpoint. If `if_missing` is empty, a missing entry is an error.
  std::function<void()> if_missing{};
  // Only for kPiece: the index of the piece's first element in the memory of the whole tensor, and that tensor's sizes
  // and strides.
  int64_t begin = 0;
  std::vector<int64_t> whole_sizes;
  std::vector<int64_t> whole_strides;
};

class StateTree {
 public:
  // Begins a part. Entries that are added after this call belong to the new part. `version` must be increased whenever
  // the meaning of a name in the part changes.
  void BeginPart(const std::string& part, int version);

  // These three functions add a shared entry. Restore() writes to the tensor or variable that was passed. `if_missing`
  // must be passed if checkpoints of older programs do not have the entry. For such a checkpoint Restore() calls
  // `if_missing`, after it has restored the entries that were added before this entry.
  void Add(const std::string& name, const at::Tensor& tensor,
           std::function<void()> if_missing = {});
  void Add(const std::string& name, int64_t& value, std::function<void()> if_missing = {});
  void Add(const std::string& name, double& value, std::function<void()> if_missing = {});

  void AddOwn(const std::string& name, const at::Tensor& tensor);
  void AddOwn(const std::string& name, std::function<at::Tensor()> get,
              std::function<void(const at::Tensor&)> set);

  // Adds a piece. `tensor` is flat and holds the elements from `begin` on of a dense tensor that has the sizes and
  // strides of `whole`.
  void AddPiece(const std::string& name, const at::Tensor& tensor, int64_t begin,
                const at::Tensor& whole);

  const std::vector<StateEntry>& entries() const { return entries_; }
  // Returns the version of each part, by the part's name.
  const std::map<std::string, int>& versions() const { return versions_; }

 private:
  void Add(StateEntry entry, std::function<void()> if_missing = {});

  std::string part_;
  std::vector<StateEntry> entries_;
  std::map<std::string, int> versions_;
};

// Returns the tensors that `rank` of `ranks` writes: its own entries and pieces, and some of the shared entries. The
// shared entries are divided so that all ranks write about the same number of bytes. `first_bytes` is the number of
// bytes that rank 0 writes in addition (the model).
std::vector<NamedTensor> PartOf(const StateTree& state, int rank, int ranks, int64_t first_bytes);

// Reads the shared entry `name` from `files`, the safetensors files to which all ranks wrote their PartOf(). Throws
// Error (kCheckpoint).
at::Tensor ReadShared(const std::vector<std::string>& files, const std::string& name);

// Restore() restores the state from `files`, the safetensors files to which all ranks wrote their PartOf(). `versions`
// are the versions of the parts at the time of writing. Throws Error (kCheckpoint).
struct RestoreOptions {
  int rank = 0;
  bool as_many_ranks = true;  // whether the job has as many ranks as the job that saved the state
  bool sharded = false;       // whether other ranks have pieces that this rank does not have
};
void Restore(const StateTree& state, const std::vector<std::string>& files,
             const std::map<std::string, int>& versions, const RestoreOptions& options);

}  // namespace lockstep
