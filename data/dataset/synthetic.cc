// A data set whose samples are random numbers. The seed of a sample's numbers is the sample's index.

#include "data/dataset/synthetic.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

class Synthetic : public Dataset {
 public:
  explicit Synthetic(SyntheticOptions options) : options_(std::move(options)) {}

  int64_t size() const override { return options_.samples; }
  const SampleSpec& spec() const override { return options_.spec; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    std::mt19937_64 random(index);
    Draw(random, options_.spec.dtype, options_.spec.bytes(), input);
    Draw(random, options_.spec.target_dtype(), options_.spec.target_bytes(), target);
    if (options_.spec.task == Task::kSegmentation) {
      for (int64_t i = 0; i < options_.spec.target_bytes(); ++i) {
        const int64_t drawn = std::to_integer<int64_t>(target[i]);
        target[i] = static_cast<std::byte>(drawn % options_.spec.classes);
      }
    }
    if (options_.spec.task != Task::kMultiLabel) return;
    for (int64_t i = 0; i < options_.spec.target_bytes(); i += sizeof(float)) {
      float number = 0;
      std::memcpy(&number, target + i, sizeof(number));
      number = number > 0 ? 1 : 0;
      std::memcpy(target + i, &number, sizeof(number));
    }
  }

 private:
  void Draw(std::mt19937_64& random, at::ScalarType dtype, int64_t bytes, std::byte* out) const {
    const auto fill = [&](auto type, const auto& draw) {
      using Number = decltype(type);
      for (int64_t i = 0; i < bytes; i += sizeof(Number)) {
        const Number number = draw();
        std::memcpy(out + i, &number, std::min<int64_t>(sizeof(Number), bytes - i));
      }
    };
    switch (dtype) {
      case at::kByte:  // fills eight bytes at once
        return fill(uint64_t{}, [&] { return random(); });
      case at::kLong:
        return fill(int64_t{}, [&] {
          return static_cast<int64_t>(random() % static_cast<uint64_t>(options_.spec.classes));
        });
      case at::kFloat:
        return fill(float{}, [&] {
          return static_cast<float>(static_cast<double>(random()) * 0x1p-63 - 1);
        });
      default:
        throw BugError("synthetic samples of {}", c10::toString(dtype));
    }
  }

  SyntheticOptions options_;
};

}  // namespace

std::shared_ptr<const Dataset> MakeSynthetic(const SyntheticOptions& options) {
  return std::make_shared<Synthetic>(options);
}

}  // namespace lockstep
