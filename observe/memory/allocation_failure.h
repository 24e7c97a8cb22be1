// AllocationFailure: the state of a GPU's memory at the moment when an allocation failed, and its explanation in words.
//
// Promise: fragmentation is named as the cause only if the free memory would have been enough as one contiguous block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct AllocationFailure {
  int64_t requested_bytes = 0;  // the requested size, rounded up by the allocator
  int64_t allocated_bytes = 0;  // the bytes that are allocated to tensors
  // The part of the GPU's memory that the allocator holds: tensors, graphs' pools, and free blocks.
  int64_t reserved_bytes = 0;
  int64_t free_bytes = 0;  // the free blocks outside of the CUDA graphs' pools
  // The part of free_bytes in blocks of the request's stream and size class.
  int64_t usable_bytes = 0;
  int64_t largest_usable_bytes = 0;  // the largest block of usable_bytes
  int64_t pool_bytes = 0;            // the part of reserved_bytes in CUDA graphs' pools
  int64_t device_free_bytes = 0;     // the GPU's memory that no process has reserved
  int64_t device_bytes = 0;          // the GPU's memory, or the part that this process may use

  // Returns whether the free memory would be enough for the request, but each piece of the free memory is too small.
  bool IsFragmented() const {
    return largest_usable_bytes < requested_bytes && device_free_bytes < requested_bytes &&
           usable_bytes + device_free_bytes >= requested_bytes;
  }
};

// Returns in words how much memory was needed and how much there was, for example "2.0 GiB were needed at once; of the
// GPU's 79.1 GiB, tensors hold 74.0 GiB, ...".
std::string WordsOf(const AllocationFailure& failure);

// Returns in words what the user can do about the failure, apart from using a smaller model or smaller micro-batches;
// an empty text if there is nothing else.
std::string RemedyOf(const AllocationFailure& failure);

// An allocation that failed on a rank of a job.
struct FailedAllocation {
  AllocationFailure failure;
  int rank = 0;
  bool is_only_rank = true;
};

// Returns the text with which a message about an out-of-memory error ends: "; rank 1: 2.0 GiB were needed at once; ...:
// set ...". The text is empty if `failed` has no value.
std::string EndOfLine(const std::optional<FailedAllocation>& failed);

}  // namespace lockstep
