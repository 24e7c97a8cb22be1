#include "tests/fuzz/guarded_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace lockstep {
namespace {

constexpr size_t kPage = 4096;

struct Block {
  void* begin;
  size_t bytes;
};

// The blocks that are in use, by the address that LibTorch has.
struct Blocks {
  std::mutex mutex;
  std::unordered_map<void*, Block> by_data;
  uint64_t bytes = 0;
};

Blocks& AllBlocks() {
  static auto& blocks = *new Blocks;
  return blocks;
}

void Free(void* data) {
  if (data == nullptr) return;
  Blocks& blocks = AllBlocks();
  const std::scoped_lock lock(blocks.mutex);
  const auto found = blocks.by_data.find(data);
  munmap(found->second.begin, found->second.bytes);
  blocks.bytes -= found->second.bytes;
  blocks.by_data.erase(found);
}

}  // namespace

GuardedMemory& GuardedMemory::Use() {
  static auto& memory = *new GuardedMemory;
  constexpr uint8_t kMost = 255;
  c10::SetCPUAllocator(&memory, kMost);
  return memory;
}

c10::DataPtr GuardedMemory::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
  Blocks& blocks = AllBlocks();
  const std::scoped_lock lock(blocks.mutex);
  const size_t inside = (bytes + kPage - 1) / kPage * kPage;
  const size_t all = inside + 2 * kPage;
  TORCH_CHECK(bytes < most_bytes_ && blocks.bytes + all <= most_bytes_,
              "the test gives no more memory");
  void* begin = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(begin != MAP_FAILED, "no memory can be mapped");
  auto* first = static_cast<uint8_t*>(begin) + kPage;
  TORCH_CHECK(mprotect(first, inside, PROT_READ | PROT_WRITE) == 0, "no memory can be used");
  places_ = places_ * 6364136223846793005U + 1442695040888963407U;
  const bool at_end = (places_ >> 62) != 0;
  uint8_t* data = at_end ? first + (inside - bytes) : first;
  std::memset(data, fill_, bytes);
  blocks.bytes += all;
  blocks.by_data[data] = {begin, all};
  return {data, data, &Free, c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr GuardedMemory::raw_deleter() const { return &Free; }

void GuardedMemory::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

}  // namespace lockstep
