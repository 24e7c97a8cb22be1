#include "base/tensor/caching_allocator.h"

#include <algorithm>
#include <iterator>

#include "base/ceil_divide.h"

namespace lockstep {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLeastBlock = 512;
constexpr int64_t kMostSmall = kMiB;
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kLargeSegment = 20 * kMiB;
constexpr int64_t kLeastOwnSegment = 10 * kMiB;
constexpr int64_t kSegmentMultiple = 2 * kMiB;

int64_t SegmentBytes(int64_t bytes) {
  if (bytes <= kMostSmall) return kSmallSegment;
  return bytes < kLeastOwnSegment ? kLargeSegment : RoundUp(bytes, kSegmentMultiple);
}

}  // namespace

int64_t CachingAllocator::RoundedUp(int64_t bytes) { return RoundUp(bytes, kLeastBlock); }

CachingAllocator::Address CachingAllocator::Allocate(int64_t bytes) {
  const int64_t rounded = RoundedUp(bytes);
  const Pool pool{.small = rounded <= kMostSmall, .of_graph = in_graph_};
  if (const Address found = TakeFree(pool, rounded); found != kNone) return found;
  if (reserved_ + SegmentBytes(rounded) > capacity_) EmptyCache();
  if (reserved_ + SegmentBytes(rounded) > capacity_) return kNone;
  return Give(NewSegment(pool, SegmentBytes(rounded)), rounded);
}

CachingAllocator::Address CachingAllocator::TakeFree(const Pool& pool, int64_t bytes) {
  auto& free = free_[pool];
  const auto smallest = free.lower_bound({bytes, kNone});
  if (smallest == free.end()) return kNone;
  const Address address = smallest->second;
  free.erase(smallest);
  return Give(address, bytes);
}

CachingAllocator::Address CachingAllocator::NewSegment(const Pool& pool, int64_t bytes) {
  const Address address = next_segment_;
  next_segment_ += static_cast<Address>(bytes);
  segments_[address] = bytes;
  blocks_[address] = {.bytes = bytes, .segment = address, .pool = pool};
  reserved_ += bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  if (pool.of_graph) graph_reserved_ += bytes;
  return address;
}

CachingAllocator::Address CachingAllocator::Give(Address address, int64_t bytes) {
  Block& block = blocks_[address];
  block.is_free = false;
  const int64_t rest = block.bytes - bytes;
  const bool splits = block.pool.small ? rest >= kLeastBlock : rest > kMostSmall;
  if (splits) {
    block.bytes = bytes;
    const Address next = address + static_cast<Address>(bytes);
    blocks_[next] = {.bytes = rest, .segment = block.segment, .pool = block.pool, .is_free = true};
    free_[block.pool].insert({rest, next});
  }
  allocated_ += block.bytes;
  if (block.pool.of_graph) graph_allocated_ += block.bytes;
  return address;
}

void CachingAllocator::Free(Address address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  Block& block = found->second;
  block.is_free = true;
  allocated_ -= block.bytes;
  if (block.pool.of_graph) graph_allocated_ -= block.bytes;
  free_[block.pool].insert({block.bytes, address});
  if (const auto next = std::next(found); next != blocks_.end()) Join(address, next->first);
  if (found != blocks_.begin()) Join(std::prev(found)->first, address);
}

void CachingAllocator::Join(Address address, Address next) {
  Block& block = blocks_.at(address);
  const Block& other = blocks_.at(next);
  if (!block.is_free || !other.is_free || block.segment != other.segment) return;
  auto& free = free_[block.pool];
  free.erase({block.bytes, address});
  free.erase({other.bytes, next});
  block.bytes += other.bytes;
  blocks_.erase(next);
  free.insert({block.bytes, address});
}

void CachingAllocator::EmptyCache() {
  for (auto& [pool, free] : free_) {
    if (pool.of_graph) continue;
    std::erase_if(free, [&](const auto& sized) {
      const auto& [bytes, address] = sized;
      const auto segment = segments_.find(address);
      if (segment == segments_.end() || segment->second != bytes) return false;
      reserved_ -= bytes;
      segments_.erase(segment);
      blocks_.erase(address);
      return true;
    });
  }
}

}  // namespace lockstep
