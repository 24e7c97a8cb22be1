// CachingAllocator: what LibTorch's CUDA allocator would do with a GPU's memory, without the GPU.
//
// Promise: with the same calls in the same order it takes as many bytes of the device, in the same segments, as
// c10/cuda/CUDACachingAllocator.cpp does with its default settings on one stream.
//
// How: sizes are rounded up to 512 bytes. Blocks of up to 1 MiB are cut from segments of 2 MiB, others of less than
// 10 MiB from segments of 20 MiB, and larger ones have a segment of their own, rounded up to 2 MiB. The smallest free
// block that suffices is taken, and its rest stays free if it is large enough to be worth it. Neighbours that are free are
// joined. The memory that a CUDA graph allocates lies in segments of its own, and stays there.
//
// what can fail -> what the caller sees -> the test that shows it (base/tensor/caching_allocator_test.cc)
//   nothing is left of the device -> kNone from Allocate(), after all segments that are free were given back
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

  // Its first segment begins at `first`.
  explicit CachingAllocator(int64_t capacity_bytes, Address first = Address{1} << 40)
      : capacity_(capacity_bytes), next_segment_(first) {}

  // Returns memory of at least one byte, or kNone.
  Address Allocate(int64_t bytes);
  void Free(Address address);
  // Returns the bytes of what Allocate() gave.
  int64_t BytesOf(Address address) const { return blocks_.at(address).bytes; }
  bool Has(Address address) const { return blocks_.contains(address); }
  // Gives back the segments that are free, but for the graphs'.
  void EmptyCache();

  // Allocations between the two lie in the graphs' segments.
  void BeginGraph() { in_graph_ = true; }
  void EndGraph() { in_graph_ = false; }

  // Returns the bytes of a block for so many.
  static int64_t RoundedUp(int64_t bytes);

  int64_t allocated_bytes() const { return allocated_; }
  int64_t reserved_bytes() const { return reserved_; }
  int64_t most_reserved_bytes() const { return most_reserved_; }
  // The bytes in the graphs' segments that no tensor has now.
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
  // Gives the block to who asked for `bytes` of it.
  Address Give(Address address, int64_t bytes);
  // Joins two blocks that lie side by side, if both are free and of one segment.
  void Join(Address address, Address next);

  int64_t capacity_;
  bool in_graph_ = false;
  Address next_segment_;
  std::map<Address, Block> blocks_;
  std::map<Address, int64_t> segments_;                         // bytes of each
  std::map<Pool, std::set<std::pair<int64_t, Address>>> free_;  // by size
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
  int64_t most_reserved_ = 0;
  int64_t graph_reserved_ = 0;
  int64_t graph_allocated_ = 0;
};

}  // namespace lockstep
