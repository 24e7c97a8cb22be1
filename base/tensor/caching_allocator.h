// CachingAllocator: simulates LibTorch's CUDA allocator without a GPU.
//
// Promise: with the same calls in the same order, CachingAllocator reserves as many bytes of the device, in segments of
// the same sizes, as c10/cuda/CUDACachingAllocator.cpp does with its default settings on one stream.
//
// How: sizes are rounded up to a multiple of 512 bytes. Blocks of up to 1 MiB are cut from segments of 2 MiB, and
// larger blocks of less than 10 MiB from segments of 20 MiB. A block of 10 MiB or more has a segment of its own, whose
// size is rounded up to a multiple of 2 MiB. An allocation takes the smallest free block that is large enough. The rest
// of the block becomes a free block of its own if it has at least 512 bytes (in a segment of 2 MiB) or more than 1 MiB
// (in a larger one). Adjacent free blocks are merged. Memory that is allocated during the capture of a CUDA graph lies
// in separate segments, which are never released.
//
// what can fail -> what the caller sees -> the test that shows it (base/tensor/caching_allocator_test.cc)
//   the device has too little memory -> kNone from Allocate(), after it has released the free segments
//     -> CachingAllocator.EndsAtItsCapacity
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace lockstep {

class CachingAllocator {
 public:
  using Address = uint64_t;
  static constexpr Address kNone = 0;

  // `first` is the address of the first segment.
  explicit CachingAllocator(int64_t capacity_bytes, Address first = Address{1} << 40)
      : capacity_(capacity_bytes), next_segment_(first) {}

  // Returns the address of a block of at least `bytes`, which must be positive, or kNone if the device has too little
  // memory.
  Address Allocate(int64_t bytes);
  void Free(Address address);
  // Returns the size of the block at `address`, which Allocate() has returned.
  int64_t BytesOf(Address address) const { return blocks_.at(address).bytes; }
  bool Has(Address address) const { return blocks_.contains(address); }
  // Releases the free segments, except those of CUDA graphs.
  void EmptyCache();

  // Allocations between BeginGraph() and EndGraph() lie in the segments of CUDA graphs.
  void BeginGraph() { in_graph_ = true; }
  void EndGraph() { in_graph_ = false; }

  // Returns `bytes` rounded up to a multiple of 512, which is the size of the smallest block that can hold `bytes`.
  static int64_t RoundedUp(int64_t bytes);

  int64_t allocated_bytes() const { return allocated_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t most_reserved_bytes() const { return most_reserved_; }
  // Returns how many bytes in the segments of CUDA graphs are not allocated.
  int64_t graph_bytes() const { return graph_reserved_ - graph_allocated_; }

 private:
  struct Pool {
    bool small = false;
    bool of_graph = false;

    auto operator<=>(const Pool&) const = default;
  };
  struct Block {
    int64_t bytes = 0;
    Address segment = kNone;
    Pool pool;
    bool is_free = false;
  };

  Address TakeFree(const Pool& pool, int64_t bytes);
  Address NewSegment(const Pool& pool, int64_t bytes);
  // Marks the first `bytes` of the block at `address` as allocated, and splits off the rest if it is large enough.
  Address Give(Address address, int64_t bytes);
  // Merges two adjacent blocks if both are free and lie in the same segment.
  void Join(Address address, Address next);

  int64_t capacity_;
  bool in_graph_ = false;
  Address next_segment_;
  std::map<Address, Block> blocks_;
  std::map<Address, int64_t> segments_;                         // size in bytes, by address
  std::map<Pool, std::set<std::pair<int64_t, Address>>> free_;  // free blocks, by size
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
  int64_t most_reserved_ = 0;
  int64_t graph_reserved_ = 0;
  int64_t graph_allocated_ = 0;
};

}  // namespace lockstep
