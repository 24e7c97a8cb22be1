#include "base/tensor/foretold_memory.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <optional>

namespace lockstep {
namespace {

using Address = CachingAllocator::Address;

// NOLINTNEXTLINE(performance-no-int-to-ptr): nobody reads what is there
void* PointerTo(Address address) { return reinterpret_cast<void*>(address); }
Address AddressOf(void* pointer) { return reinterpret_cast<Address>(pointer); }

// The allocator that LibTorch uses for the device META. It is never destroyed, because tensors may outlive all other
// objects.
class Memory final : public c10::Allocator {
 public:
  static Memory& Of() {
    static auto& memory = *new Memory;
    return memory;
  }

  void Begin(int64_t capacity_bytes) {
    const std::scoped_lock lock(mutex_);
    TORCH_CHECK(!model_, "there is a foretold memory already");
    // Each ForetoldMemory has a separate range of addresses, so that a tensor of an earlier ForetoldMemory is not
    // mistaken for one of the current ForetoldMemory.
    constexpr int kApart = 44;
    model_.emplace(capacity_bytes, ++memories_ << kApart);
  }
  void End() {
    const std::scoped_lock lock(mutex_);
    model_.reset();
  }
  template <typename Act>
  void Do(const Act& act) {
    const std::scoped_lock lock(mutex_);
    if (model_) act(*model_);
  }
  const CachingAllocator& model() const { return *model_; }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kMeta)};
    void* pointer = nullptr;
    Do([&](CachingAllocator& model) {
      const Address address = model.Allocate(static_cast<int64_t>(bytes));
      TORCH_CHECK_WITH(OutOfMemoryError, address != CachingAllocator::kNone,
                       "the foretold GPU is out of memory: ", bytes, " bytes more were needed");
      pointer = PointerTo(address);
      Report(pointer, model.BytesOf(address), model);
    });
    return {pointer, pointer, &Free, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}

 private:
  static void Free(void* pointer) {
    Of().Do([&](CachingAllocator& model) {
      const Address address = AddressOf(pointer);
      if (!model.Has(address)) return;  // an earlier ForetoldMemory allocated it
      const int64_t bytes = model.BytesOf(address);
      model.Free(address);
      Report(pointer, -bytes, model);
    });
  }

  static void Report(void* pointer, int64_t bytes, const CachingAllocator& model) {
    c10::reportMemoryUsageToProfiler(pointer, bytes, model.allocated_bytes(),
                                     model.reserved_bytes(), c10::Device(c10::kMeta));
  }

  std::mutex mutex_;
  std::optional<CachingAllocator> model_;
  Address memories_ = 0;
};

}  // namespace

ForetoldMemory::ForetoldMemory(int64_t capacity_bytes) : before_(c10::GetAllocator(c10::kMeta)) {
  Memory::Of().Begin(capacity_bytes);
  c10::SetAllocator(c10::kMeta, &Memory::Of());
}

ForetoldMemory::~ForetoldMemory() {
  c10::SetAllocator(c10::kMeta, before_);
  Memory::Of().End();
}

const CachingAllocator& ForetoldMemory::allocator() const { return Memory::Of().model(); }

void ForetoldMemory::EmptyCache() {
  Memory::Of().Do([](CachingAllocator& model) { model.EmptyCache(); });
}

void ForetoldMemory::AsGraph(const std::function<void()>& act) {
  Memory::Of().Do([](CachingAllocator& model) { model.BeginGraph(); });
  class End {
   public:
    End() = default;
    ~End() {
      Memory::Of().Do([](CachingAllocator& model) { model.EndGraph(); });
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
  } const end;
  act();
}

void MoveToForetold(const at::Tensor& tensor) {
  const at::Tensor moved =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  // Tensor::set_data() would refuse a tensor on another type of device.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
}

}  // namespace lockstep
