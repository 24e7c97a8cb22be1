// StateTree: the tensors and values on which the next step depends, each with a name.
//
// Promise: a checkpoint holds everything that is added to the tree, and resuming restores it. Nothing is restored
// before it is known that everything fits.
//
// A name has one of three kinds:
//   shared  is the same on all ranks; one rank writes it
//   own     belongs to one rank (its random numbers). RANK is part of its name in the file, "random.cpu@3". It is
//           restored only in a job with the same number of ranks, and only if it was saved (a run that trained on
//           the CPU saved no random numbers of a GPU)
//   piece   is a part of a tensor that the ranks hold together (optimizer.shard), flat, in the order of the whole
//           tensor's memory: "optimizer.exp_avg.fc.weight[0:500]". A tensor that was saved whole or in any pieces
//           can be restored in any other pieces
//
// what can fail -> what the caller sees -> the test that shows it (ckpt/state_tree_test.cc)
//   a name that the checkpoint lacks, one that nobody asks for, another dtype or shape, a newer part
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
  // Returns the value to save: a tensor on any device, which may change later.
  std::function<at::Tensor()> get;
  // Restores the value from a tensor on the CPU that has the shape and dtype of get()'s.
  std::function<void(const at::Tensor&)> set;
  // kShared: called instead of set() if an older program wrote the checkpoint without this entry; empty: a missing
  // entry is an error.
  std::function<void()> if_missing{};
  // kPiece: the index of the piece's first element in the memory of the whole tensor, and that tensor's sizes and
  // strides.
  int64_t begin = 0;
  std::vector<int64_t> whole_sizes;
  std::vector<int64_t> whole_strides;
};

class StateTree {
 public:
  // Begins a part; entries that are added from now on belong to it. `version` must grow with every change in the
  // meaning of the part's names.
  void BeginPart(const std::string& part, int version);

  // Add a shared entry. Restoring writes to the tensor or variable that was passed. `if_missing` says that checkpoints of
  // older programs do not have the entry: for such a checkpoint it is called after the entries before it were restored.
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
  // The version of each part, by the part's name.
  const std::map<std::string, int>& versions() const { return versions_; }

 private:
  void Add(StateEntry entry, std::function<void()> if_missing = {});

  std::string part_;
  std::vector<StateEntry> entries_;
  std::map<std::string, int> versions_;
};

// Returns the tensors that `rank` of `ranks` writes: its own entries and pieces, and so many shared entries that all
// ranks write about as much. `first_bytes` is the size of what rank 0 writes in addition.
std::vector<NamedTensor> PartOf(const StateTree& state, int rank, int ranks, int64_t first_bytes);

// Reads a shared entry from files that PartOf() was written to. Throws Error (kCheckpoint).
at::Tensor ReadShared(const std::vector<std::string>& files, const std::string& name);

// Restores the state from `files`, the safetensors files with the PartOf() of all ranks. `versions` are the versions of
// the parts at the time of writing. Throws Error (kCheckpoint).
struct RestoreOptions {
  int rank = 0;
  bool as_many_ranks = true;  // whether the job has as many ranks as the job that saved the state
  bool sharded = false;       // whether other ranks have pieces that this rank does not have
};
void Restore(const StateTree& state, const std::vector<std::string>& files,
             const std::map<std::string, int>& versions, const RestoreOptions& options);

}  // namespace lockstep
