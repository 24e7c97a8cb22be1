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
  // What is saved: a tensor of any device, which still changes.
  std::function<at::Tensor()> get;
  // What is given back: a tensor on the CPU, like get()'s.
  std::function<void(const at::Tensor&)> set;
  // kShared: called instead where the checkpoint is of a program that did not have it; empty: that is an error.
  std::function<void()> if_missing{};
  // kPiece: elements of the whole's memory before it, and the whole.
  int64_t begin = 0;
  std::vector<int64_t> whole_sizes;
  std::vector<int64_t> whole_strides;
};

class StateTree {
 public:
  // What is added from now on belongs to it. `version` grows with every change of what the part's names
  // mean.
  void BeginPart(const std::string& part, int version);

  // Shared. Restoring writes into what is referred to.
  void Add(const std::string& name, const at::Tensor& tensor);
  void Add(const std::string& name, int64_t& value);
  void Add(const std::string& name, double& value);

  // One that checkpoints of earlier programs lack: `if_missing` is called then, after those before it were restored.
  void Add(const std::string& name, const at::Tensor& tensor, std::function<void()> if_missing);

  void AddOwn(const std::string& name, const at::Tensor& tensor);
  void AddOwn(const std::string& name, std::function<at::Tensor()> get,
              std::function<void(const at::Tensor&)> set);

  // `tensor`: flat, the elements from `begin` on of a tensor of `whole`'s sizes and strides, which is dense.
  void AddPiece(const std::string& name, const at::Tensor& tensor, int64_t begin,
                const at::Tensor& whole);

  const std::vector<StateEntry>& entries() const { return entries_; }
  // Of each part, by its name.
  const std::map<std::string, int>& versions() const { return versions_; }

 private:
  void Add(StateEntry entry);

  std::string part_;
  std::vector<StateEntry> entries_;
  std::map<std::string, int> versions_;
};

// What `rank` of `ranks` writes of it: own entries and pieces, and of the shared ones those that make all
// ranks write about as much. `first_bytes`: what rank 0 has to write besides.
std::vector<NamedTensor> PartOf(const StateTree& state, int rank, int ranks, int64_t first_bytes);

// A shared entry of such files. Throws Error (kCheckpoint).
at::Tensor ReadShared(const std::vector<std::string>& files, const std::string& name);

// Gives the state back from `files`, safetensors that PartOf() of all of `ranks` ranks went into. `versions`:
// of the parts when they were written. `sharded`: other ranks ask for pieces that this one does not. Throws
// Error (kCheckpoint).
struct RestoreOptions {
  int rank = 0;
  bool as_many_ranks = true;  // as when it was saved
  bool sharded = false;
};
void Restore(const StateTree& state, const std::vector<std::string>& files,
             const std::map<std::string, int>& versions, const RestoreOptions& options);

}  // namespace lockstep
