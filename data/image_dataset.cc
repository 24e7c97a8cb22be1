#include "data/image_dataset.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/encoded_cache.h"
#include "data/image_decoder.h"
#include "data/resize.h"
#include "data/sample_random.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;
constexpr size_t kKeptBytes = size_t{128} << 20;  // of a thread's memory, for the next image

// What a thread keeps from one image to the next.
struct Workshop {
  std::vector<std::byte> file;
  ImageDecoder decoder;
  Resizer resizer;
};

// Nanoseconds of all threads.
struct Clocks {
  using Clock = std::chrono::steady_clock;
  enum Phase { kReading, kDecoding, kResizing, kPhases };
  std::array<std::atomic<int64_t>, kPhases> ns{};

  // Counts the time since `begin` to `phase`, and begins anew.
  void Count(Phase phase, Clock::time_point& begin) {
    const Clock::time_point now = Clock::now();
    ns[phase].fetch_add(std::chrono::nanoseconds(now - begin).count(), std::memory_order_relaxed);
    begin = now;
  }
};

// Whole decoded images: the size, then the rows without gaps.
class DecodedCache {
 public:
  DecodedCache(int64_t samples, std::shared_ptr<MemoryBudget> budget)
      : kept_(samples, std::move(budget)) {}

  // No pixels: it is not kept.
  ImageView Find(int64_t sample) const {
    const std::span<const std::byte> bytes = kept_.Find(sample);
    if (bytes.empty()) return {};
    ImageSize size;
    std::memcpy(&size, bytes.data(), sizeof(size));
    return {.pixels = reinterpret_cast<const uint8_t*>(bytes.data() + sizeof(size)),
            .width = size.width,
            .height = size.height,
            .stride = kChannels * size.width};
  }

  void Keep(int64_t sample, const ImageView& image) {
    const ImageSize size = {image.width, image.height};
    const size_t row_bytes = kChannels * image.width;
    kept_.Keep(sample, sizeof(size) + row_bytes * image.height, [&](std::byte* to) {
      std::memcpy(to, &size, sizeof(size));
      to += sizeof(size);
      for (int64_t y = 0; y < image.height; ++y, to += row_bytes) {
        std::memcpy(to, image.pixels + y * image.stride, row_bytes);
      }
    });
  }

 private:
  KeptBytes kept_;
};

class Images : public Dataset {
 public:
  Images(std::shared_ptr<const ImageSource> source, std::shared_ptr<DecodedCache> decoded,
         const ImageOptions& options, bool augments)
      : source_(std::move(source)),
        decoded_(std::move(decoded)),
        options_(options),
        augments_(augments),
        spec_{.shape = {kChannels, options.size, options.size},
              .dtype = at::kByte,
              .channels_last = true,
              .classes = source_->classes(),
              .class_names = source_->class_names()} {}

  int64_t size() const override { return source_->size(); }
  const SampleSpec& spec() const override { return spec_; }

  std::shared_ptr<const Dataset> Plain() const override {
    return std::make_shared<Images>(source_, decoded_, options_, /*augments=*/false);
  }

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    static thread_local std::unique_ptr<Workshop> kept;
    if (!kept) kept = std::make_unique<Workshop>();
    Workshop& workshop = *kept;
    Clocks::Clock::time_point begin = Clocks::Clock::now();

    SampleRandom random(options_.seed, epoch, index);
    const auto choose = [&](const ImageSize& image) {
      return augments_ ? RandomCrop(image, options_.crop, random)
                       : CenterCrop(image, options_.center);
    };
    ImageDecoder::Part part;
    if (decoded_) part.pixels = decoded_->Find(index);
    size_t pixel_bytes = 0;  // of the thread's memory
    if (part.pixels.pixels != nullptr) {
      part.box = choose({part.pixels.width, part.pixels.height});
    } else {
      const std::span<const std::byte> file = Load(index, workshop.file);
      clocks_.Count(Clocks::kReading, begin);
      part = Decode(index, file, workshop.decoder, choose);
      pixel_bytes = part.pixels.stride * part.pixels.height;
      clocks_.Count(Clocks::kDecoding, begin);
    }

    const bool mirrored = augments_ && options_.mirror && random.Uniform() < 0.5;
    workshop.resizer.Resize(part.pixels, part.box, options_.size, options_.size, mirrored,
                            reinterpret_cast<uint8_t*>(input));
    clocks_.Count(Clocks::kResizing, begin);

    const int64_t label = source_->LabelOf(index);
    static_assert(ImageSource::kNoLabel == kNoLabel);
    std::memcpy(target, &label, sizeof(label));
    // One huge image must not cost every thread its memory for good.
    if (workshop.file.size() + pixel_bytes > kKeptBytes) kept.reset();
  }

  std::string Fingerprint() const override { return source_->Fingerprint(); }

  ReadTimes times() const override {
    const auto seconds = [&](Clocks::Phase phase) {
      return 1e-9 * static_cast<double>(clocks_.ns[phase].load(std::memory_order_relaxed));
    };
    return {.files = seconds(Clocks::kReading),
            .decoding = seconds(Clocks::kDecoding),
            .resizing = seconds(Clocks::kResizing)};
  }

 private:
  std::span<const std::byte> Load(int64_t index, std::vector<std::byte>& buffer) const {
    try {
      return source_->Load(index, buffer);
    } catch (const std::bad_alloc&) {
      throw DataError("{}: there is not enough memory to read it", source_->NameOf(index));
    }
  }

  // The part of the image that choose(size) says; with a cache of pixels of the whole image, which is
  // kept if there is room.
  template <typename Choose>
  ImageDecoder::Part Decode(int64_t index, std::span<const std::byte> file, ImageDecoder& decoder,
                            const Choose& choose) const {
    try {
      const ImageSize size = decoder.Open(file);
      const Box box = choose(size);
      if (!decoded_) return decoder.Decode(box, options_.size, options_.size);
      const Box all = {0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
      const ImageView pixels = decoder.Decode(all, size.width, size.height).pixels;
      decoded_->Keep(index, pixels);
      return {.pixels = pixels, .box = box};
    } catch (const Error& error) {
      throw Error(error.status(), fmt::format("{}: {}", source_->NameOf(index), error.what()));
    } catch (const std::bad_alloc&) {
      throw DataError("{}: there is not enough memory to decode it", source_->NameOf(index));
    }
  }

  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<DecodedCache> decoded_;  // null: parts are decoded, as far as they are needed
  ImageOptions options_;
  bool augments_;
  mutable Clocks clocks_;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Dataset> OpenImages(const ImageOptions& options) {
  std::shared_ptr<const ImageSource> source = OpenImageSource(options.source);
  std::shared_ptr<DecodedCache> decoded;
  switch (options.cache) {
    case ImageCache::kOff:
      break;
    case ImageCache::kEncoded:
      source = KeepEncoded(std::move(source), options.budget);
      break;
    case ImageCache::kDecoded:
      decoded = std::make_shared<DecodedCache>(source->size(), options.budget);
      break;
  }
  return std::make_shared<Images>(std::move(source), std::move(decoded), options,
                                  /*augments=*/true);
}

}  // namespace lockstep
