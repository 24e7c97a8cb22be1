#include "data/images/encoded_cache.h"

#include <cstring>
#include <utility>

namespace lockstep {
namespace {

class EncodedCache : public ImageSource {
 public:
  EncodedCache(std::shared_ptr<const ImageSource> source, std::shared_ptr<MemoryBudget> budget)
      : source_(std::move(source)), kept_(source_->size(), std::move(budget)) {}

  int64_t size() const override { return source_->size(); }
  int64_t classes() const override { return source_->classes(); }
  const std::vector<std::string>& class_names() const override { return source_->class_names(); }
  int64_t LabelOf(int64_t i) const override { return source_->LabelOf(i); }
  std::string NameOf(int64_t i) const override { return source_->NameOf(i); }
  std::string PathOf(int64_t i) const override { return source_->PathOf(i); }
  std::vector<int64_t> ChangedOf(int64_t time_ns, std::vector<int64_t> samples) const override {
    return source_->ChangedOf(time_ns, std::move(samples));
  }
  std::vector<std::string> Remarks() const override { return source_->Remarks(); }
  std::string Fingerprint() const override { return source_->Fingerprint(); }

  std::span<const std::byte> Load(int64_t i, std::vector<std::byte>& buffer) const override {
    if (const std::span<const std::byte> kept = kept_.Find(i); !kept.empty()) return kept;
    const std::span<const std::byte> bytes = source_->Load(i, buffer);
    kept_.Keep(i, bytes.size(),
               [&](std::byte* to) { std::memcpy(to, bytes.data(), bytes.size()); });
    return bytes;
  }

 private:
  std::shared_ptr<const ImageSource> source_;
  mutable KeptBytes kept_;
};

}  // namespace

std::shared_ptr<const ImageSource> KeepEncoded(std::shared_ptr<const ImageSource> source,
                                               std::shared_ptr<MemoryBudget> budget) {
  return std::make_shared<EncodedCache>(std::move(source), std::move(budget));
}

}  // namespace lockstep
