// AllocationFailure: the state of a GPU's memory at the moment when an allocation failed, and what it says.
//
// Promise: fragmentation is named only if the free memory would have sufficed in one piece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct AllocationFailure {
  int64_t requested_bytes = 0;  // what was needed: what was asked for, rounded up by the allocator
  int64_t allocated_bytes = 0;  // in tensors
  // The part of the GPU's memory that the allocator holds: tensors, graphs' pools, and free blocks.
  int64_t reserved_bytes = 0;
  int64_t free_bytes = 0;  // the free blocks of these, without those of the graphs' pools
  int64_t usable_bytes =
      0;  // those of these blocks that are of the same stream, and of the same kind of sizes
  int64_t largest_usable_bytes = 0;  // the largest of these
  int64_t pool_bytes = 0;            // what the CUDA graphs' pools hold of reserved_bytes
  int64_t device_free_bytes = 0;     // what nobody holds of the GPU's memory
  int64_t device_bytes = 0;  // the GPU's memory, or the part of it that this process may have

  // Returns whether the free memory is enough but lies in pieces that are too small.
  bool IsFragmented() const {
    return largest_usable_bytes < requested_bytes && device_free_bytes < requested_bytes &&
           usable_bytes + device_free_bytes >= requested_bytes;
  }
};

// Returns what was needed and what there was, for example "2.0 GiB were needed at once; of the GPU's 79.1 GiB, tensors
// hold 74.0 GiB, ...".
std::string WordsOf(const AllocationFailure& failure);

// Returns what the user can do about it beyond a smaller model or smaller micro-batches; empty: nothing.
std::string RemedyOf(const AllocationFailure& failure);

// An allocation that failed on a rank of a job.
struct FailedAllocation {
  AllocationFailure failure;
  int rank = 0;
  bool is_only_rank = true;
};

// Returns the end of a line about memory that ran out: "; rank 1: 2.0 GiB were needed at once; ...: set ...". Empty if
// it is not known which allocation failed.
std::string EndOfLine(const std::optional<FailedAllocation>& failed);

}  // namespace lockstep
