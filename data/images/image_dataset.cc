#include "data/images/image_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/dataset/sample_random.h"
#include "data/dataset/sample_record.h"
#include "data/images/encoded_cache.h"
#include "data/images/gpu_decoder.h"
#include "data/images/image_decoder.h"
#include "data/images/open_images.h"
#include "data/images/orientation.h"
#include "data/images/resize.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;
constexpr size_t kKeptBytes = size_t{128} << 20;  // the most bytes of buffers that a thread keeps

// The buffers and the decoding objects that a thread keeps from one image to the next.
struct Workshop {
  std::vector<std::byte> file;
  ImageDecoder decoder;
  Resizer resizer;
  std::vector<uint8_t> as_stored;  // the resized part of an image, before Turn() turns it
  Mask mask;
  // The following members are for the GPU, which decodes many images at once.
  std::vector<std::vector<std::byte>> files;
  std::vector<ImageSize> sizes;  // the sizes of the images
  std::optional<GpuDecoder> gpu;
};

// The nanoseconds that all threads together have spent in each phase of Read().
struct Clocks {
  using Clock = std::chrono::steady_clock;
  enum Phase { kReading, kDecoding, kResizing, kGpu, kPhases };
  std::array<std::atomic<int64_t>, kPhases> ns{};

  // Adds the time since `begin` to `phase`, and sets `begin` to the current time.
  void Count(Phase phase, Clock::time_point& begin) {
    const Clock::time_point now = Clock::now();
    ns[phase].fetch_add(std::chrono::nanoseconds(now - begin).count(), std::memory_order_relaxed);
    begin = now;
  }
};

// The decoded pixels of an image, or of a part of an image, as they are stored in the file: not yet turned by the EXIF
// orientation.
struct Stored {
  ImageDecoder::Part part;
  Orientation orientation;
  ImageSize size;  // the size of the whole image
};

// A cache of whole decoded images. An entry consists of a Head, which holds the size and the orientation, and of the
// rows without gaps.
class DecodedCache {
 public:
  DecodedCache(int64_t samples, std::shared_ptr<MemoryBudget> budget)
      : kept_(samples, std::move(budget)) {}

  // Returns the image of `sample`. If the cache does not hold this image, the result has no pixels.
  Stored Find(int64_t sample) const {
    const std::span<const std::byte> bytes = kept_.Find(sample);
    if (bytes.empty()) return {};
    Head head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    return {
        .part = {.pixels = {.pixels = reinterpret_cast<const uint8_t*>(bytes.data() + sizeof(head)),
                            .width = head.size.width,
                            .height = head.size.height,
                            .stride = kChannels * head.size.width}},
        .orientation = head.orientation,
        .size = head.size};
  }

  void Keep(int64_t sample, const ImageView& image, const Orientation& orientation) {
    const Head head = {.size = {image.width, image.height}, .orientation = orientation};
    const size_t row_bytes = kChannels * image.width;
    kept_.Keep(sample, sizeof(head) + row_bytes * image.height, [&](std::byte* to) {
      std::memcpy(to, &head, sizeof(head));
      to += sizeof(head);
      for (int64_t y = 0; y < image.height; ++y, to += row_bytes) {
        std::memcpy(to, image.pixels + y * image.stride, row_bytes);
      }
    });
  }

 private:
  struct Head {
    ImageSize size;
    Orientation orientation;
  };

  KeptBytes kept_;
};

// The masks, and the conversion of their values to classes.
struct ClassMasks {
  Masks files;
  MaskClasses classes;
  std::shared_ptr<SampleRecord> record;
};

std::shared_ptr<SampleRecord> RecordOf(const std::shared_ptr<const ImageSource>& images) {
  return std::make_shared<SampleRecord>(
      SampleRecord::Options{.part = "images",
                            .samples = images->size(),
                            .name_of = [images](int64_t i) { return images->NameOf(i); },
                            .read =
                                [images](int64_t i) {
                                  std::vector<std::byte> buffer;
                                  return SampleRecord::HashOf(images->Load(i, buffer));
                                },
                            .changed_since =
                                [images](int64_t time_ns, std::vector<int64_t> samples) {
                                  return images->ChangedOf(time_ns, std::move(samples));
                                }});
}

std::shared_ptr<const ClassMasks> OpenMasks(const MaskOptions& options,
                                            const std::shared_ptr<const ImageSource>& images) {
  auto masks = std::make_shared<ClassMasks>(
      ClassMasks{Masks(options.folder, images), MaskClasses(options.values), nullptr});
  const Masks& files = masks->files;
  // The record lives as long as `files`.
  masks->record = std::make_shared<SampleRecord>(SampleRecord::Options{
      .part = "masks",
      .samples = files.size(),
      .name_of = [&files](int64_t i) { return files.PathOf(i); },
      .read =
          [&files](int64_t i) {
            Mask mask;
            files.Read(i, mask);
            return mask.file_hash;
          },
      .changed_since =
          [&files](int64_t time_ns, const std::vector<int64_t>& samples) {
            return ChangedFiles(time_ns, samples, [&](int64_t i) { return files.PathOf(i); });
          }});
  return masks;
}

class Images : public Dataset {
 public:
  Images(std::shared_ptr<const ImageSource> source, std::shared_ptr<const ClassMasks> masks,
         std::shared_ptr<DecodedCache> decoded, std::shared_ptr<SampleRecord> record,
         const ImageOptions& options, bool augments)
      : source_(std::move(source)),
        masks_(std::move(masks)),
        decoded_(std::move(decoded)),
        record_(std::move(record)),
        options_(options),
        augments_(augments),
        spec_{.shape = {kChannels, options.size, options.size},
              .dtype = at::kByte,
              .channels_last = true,
              .classes = source_->classes(),
              .class_names = source_->class_names()} {
    if (!options.masks) return;
    spec_.task = Task::kSegmentation;
    spec_.classes = std::ssize(options.masks->values.of_classes);
    spec_.class_names.clear();
  }

  int64_t size() const override { return source_->size(); }
  const SampleSpec& spec() const override { return spec_; }

  std::shared_ptr<const Dataset> Plain() const override {
    return std::make_shared<Images>(source_, masks_, decoded_, record_, options_,
                                    /*augments=*/false);
  }

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    ReadSome(std::span(&index, 1), epoch, input, target);
  }

  void ReadTarget(int64_t index, std::byte* target) const override {
    if (has_masks()) {
      Mask mask;
      ReadMask(index, /*epoch=*/0, /*image=*/nullptr, mask, target);
      return;
    }
    const int64_t label = source_->LabelOf(index);
    static_assert(ImageSource::kNoLabel == kNoLabel);
    std::memcpy(target, &label, sizeof(label));
  }

  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override {
    static thread_local std::unique_ptr<Workshop> kept;
    if (!kept) kept = std::make_unique<Workshop>();
    kept->sizes.resize(indices.size());
    std::vector<bool> is_cut;  // for each image, whether the GPU has made its pixels
    if (options_.gpu) {
      is_cut = CutOnGpu(indices, epoch, *kept, reinterpret_cast<uint8_t*>(input));
    }
    size_t used = 0;  // the most memory that one image needed, in bytes
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!options_.gpu || !is_cut[i]) {
        const size_t pixels =
            Cut(indices[i], epoch, *kept, kept->sizes[i], reinterpret_cast<uint8_t*>(input));
        used = std::max(used, kept->file.size() + pixels);
      }
      if (has_masks()) {
        ReadMask(indices[i], epoch, &kept->sizes[i], kept->mask, target);
        used = std::max(used, kept->mask.pixels.size());
      } else {
        ReadTarget(indices[i], target);
      }
      input += spec_.bytes();
      target += spec_.target_bytes();
    }
    // After a huge image, the thread frees its buffers instead of keeping them for the rest of the run.
    if (used > kKeptBytes) kept.reset();
  }

  int64_t samples_at_once() const override { return options_.gpu ? GpuDecoder::kAtOnce : 1; }

  std::string FileOf(int64_t index) const override { return source_->PathOf(index); }

  std::vector<std::string> Remarks() const override {
    std::vector<std::string> remarks = source_->Remarks();
    if (masks_) std::ranges::copy(masks_->files.remarks(), std::back_inserter(remarks));
    if (has_masks()) std::ranges::copy(options_.masks->remarks, std::back_inserter(remarks));
    return remarks;
  }

  std::string Fingerprint() const override {
    if (!has_masks()) return source_->Fingerprint();
    const MaskValues& values = options_.masks->values;
    return fmt::format("{} with masks of {} not {}", source_->Fingerprint(),
                       fmt::join(values.of_classes, " "), values.ignored);
  }

  DataContents Contents() const override {
    DataContents contents;
    const std::string list = Fingerprint();
    contents.AddPart(DataContents::kList, std::as_bytes(std::span(list)));
    return contents;
  }

  std::vector<std::shared_ptr<SampleRecord>> Records() const override {
    std::vector<std::shared_ptr<SampleRecord>> records{record_};
    if (masks_) records.push_back(masks_->record);
    return records;
  }

  ReadTimes times() const override {
    const auto seconds = [&](Clocks::Phase phase) {
      return 1e-9 * static_cast<double>(clocks_.ns[phase].load(std::memory_order_relaxed));
    };
    return {.files = seconds(Clocks::kReading),
            .decoding = seconds(Clocks::kDecoding),
            .resizing = seconds(Clocks::kResizing),
            .gpu = seconds(Clocks::kGpu)};
  }

 private:
  // The part of an image that a sample uses in an epoch. BoxIn() must be called exactly once, and before Mirrored():
  // both draw from random_, so the order of the calls decides which random numbers they get.
  class View {
   public:
    View(const Images& images, int64_t index, int64_t epoch)
        : images_(images), random_(images.options_.seed, epoch, index) {}

    // Returns the box of this part in the image as it is stored in the file, before the image is turned. `stored` is
    // the size of the stored image.
    Box BoxIn(const ImageSize& stored, const Orientation& orientation) {
      const ImageSize image = TurnedSize(stored, orientation);
      return StoredBox(BoxOf(image), stored, orientation);
    }
    bool Mirrored() {
      return images_.augments_ && images_.options_.mirror && random_.Uniform() < 0.5;
    }

   private:
    Box BoxOf(const ImageSize& image) {
      if (images_.augments_) return RandomCrop(image, images_.options_.crop, random_);
      if (!images_.has_masks()) return CenterCrop(image, images_.options_.center);
      return {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
    }

    const Images& images_;
    SampleRandom random_;
  };

  bool has_masks() const { return options_.masks.has_value(); }

  // Writes to `target` the part of the sample's mask that the epoch uses. `mask` is memory for the whole mask. `image`
  // is the image's size, which the mask must have, too; null: the size is unknown.
  void ReadMask(int64_t index, int64_t epoch, const ImageSize* image, Mask& mask,
                std::byte* target) const {
    if (!masks_) {
      std::fill_n(target, spec_.targets(), static_cast<std::byte>(kIgnoredPixel));
      return;
    }
    Clocks::Clock::time_point begin = Clocks::Clock::now();
    masks_->files.Read(index, mask);
    masks_->record->Check(index, mask.file_hash);
    const std::string path = masks_->files.PathOf(index);
    if (image != nullptr && *image != mask.size) {
      throw DataError("{}: {} x {} pixels, where its image {} has {} x {}", path, mask.size.width,
                      mask.size.height, source_->NameOf(index), image->width, image->height);
    }
    masks_->classes.Convert(path, mask);
    masks_->record->Keep(index, mask.file_hash);
    View view(*this, index, epoch);
    const Box box = view.BoxIn(mask.size, {});
    CutMask(mask, box, options_.size, options_.size, view.Mirrored(),
            reinterpret_cast<uint8_t*>(target));
    clocks_.Count(Clocks::kDecoding, begin);
  }

  // Decodes and resizes an image on this thread, and sets `image_size` to the size of the image in its file. Returns
  // how many bytes of decoded pixels `workshop` holds; 0 if the pixels came from the cache.
  size_t Cut(int64_t index, int64_t epoch, Workshop& workshop, ImageSize& image_size,
             uint8_t* input) const {
    Clocks::Clock::time_point begin = Clocks::Clock::now();
    View view(*this, index, epoch);
    Stored stored;
    if (decoded_) stored = decoded_->Find(index);
    const ImageView& pixels = stored.part.pixels;
    size_t pixel_bytes = 0;
    if (pixels.pixels != nullptr) {
      stored.part.box = view.BoxIn({pixels.width, pixels.height}, stored.orientation);
    } else {
      const std::span<const std::byte> file = Load(index, workshop.file);
      const uint32_t hash = SampleRecord::HashOf(file);
      record_->Check(index, hash);
      clocks_.Count(Clocks::kReading, begin);
      stored = Decode(index, file, workshop.decoder, view);
      record_->Keep(index, hash);
      pixel_bytes = pixels.stride * pixels.height;
      clocks_.Count(Clocks::kDecoding, begin);
    }
    image_size = stored.size;
    const int64_t size = options_.size;
    const bool mirror = view.Mirrored();
    if (stored.orientation.turns()) {
      workshop.as_stored.resize(spec_.bytes());
      workshop.resizer.Resize(pixels, stored.part.box, size, size, /*mirror=*/false,
                              workshop.as_stored.data());
      Turn({.pixels = workshop.as_stored.data(),
            .width = size,
            .height = size,
            .stride = kChannels * size},
           stored.orientation, mirror, input);
    } else {
      workshop.resizer.Resize(pixels, stored.part.box, size, size, mirror, input);
    }
    clocks_.Count(Clocks::kResizing, begin);
    return pixel_bytes;
  }

  // Decodes and resizes on the GPU those images that the GPU's decoder supports. Returns for each image whether its
  // pixels are in `input`.
  std::vector<bool> CutOnGpu(std::span<const int64_t> indices, int64_t epoch, Workshop& workshop,
                             uint8_t* input) const {
    Clocks::Clock::time_point begin = Clocks::Clock::now();
    std::vector<GpuDecoder::Job> jobs(indices.size());
    std::vector<uint32_t> hashes(indices.size());
    workshop.files.resize(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      try {
        const std::span<const std::byte> file = Load(indices[i], workshop.files[i]);
        hashes[i] = SampleRecord::HashOf(file);
        record_->Check(indices[i], hashes[i]);
        const ImageSize size = workshop.decoder.Open(file);
        workshop.sizes[i] = size;
        if (!workshop.decoder.IsPlainJpeg() || OrientationIn(file).turns()) continue;
        if (size.width > GpuDecoder::kMostPixels / size.height) continue;
        View view(*this, indices[i], epoch);
        jobs[i] = {
            .file = file, .size = size, .box = view.BoxIn(size, {}), .mirror = view.Mirrored()};
      } catch (const Error&) {
        continue;  // the later call of Cut() for this file throws the error
      }
    }
    clocks_.Count(Clocks::kReading, begin);
    if (!workshop.gpu || workshop.gpu->device() != *options_.gpu) {
      workshop.gpu.emplace(*options_.gpu);
    }
    std::vector<bool> is_cut = workshop.gpu->Cut(jobs, options_.size, options_.size, input);
    for (size_t i = 0; i < indices.size(); ++i) {
      if (is_cut[i]) record_->Keep(indices[i], hashes[i]);
    }
    size_t used = 0;
    for (const std::vector<std::byte>& file : workshop.files) used += file.size();
    if (used > kKeptBytes) workshop.files.clear();
    clocks_.Count(Clocks::kGpu, begin);
    return is_cut;
  }

  Orientation OrientationIn(std::span<const std::byte> file) const {
    return options_.exif_orientation ? OrientationOf(file) : Orientation{};
  }

  std::span<const std::byte> Load(int64_t index, std::vector<std::byte>& buffer) const {
    try {
      return source_->Load(index, buffer);
    } catch (const std::bad_alloc&) {
      throw DataError("{}: there is not enough memory to read it", source_->NameOf(index));
    }
  }

  // Decodes the part of the image that `view` uses. With ImageCache::kDecoded it decodes the whole image, and adds the
  // image to the cache if the cache has room.
  Stored Decode(int64_t index, std::span<const std::byte> file, ImageDecoder& decoder,
                View& view) const {
    try {
      const ImageSize size = decoder.Open(file);
      const Orientation orientation = OrientationIn(file);
      const Box box = view.BoxIn(size, orientation);
      if (!decoded_) return {decoder.Decode(box, options_.size, options_.size), orientation, size};
      const Box all = {0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
      const ImageView pixels = decoder.Decode(all, size.width, size.height).pixels;
      decoded_->Keep(index, pixels, orientation);
      return {{.pixels = pixels, .box = box}, orientation, size};
    } catch (const Error& error) {
      throw Error(error.status(), fmt::format("{}: {}", source_->NameOf(index), error.what()));
    } catch (const std::bad_alloc&) {
      throw DataError("{}: there is not enough memory to decode it", source_->NameOf(index));
    }
  }

  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<const ClassMasks> masks_;  // null: the targets are no masks, or they are unknown
  std::shared_ptr<DecodedCache> decoded_;    // null: only the needed part of an image is decoded
  std::shared_ptr<SampleRecord> record_;
  ImageOptions options_;
  bool augments_;
  mutable Clocks clocks_;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Dataset> OpenImages(const ImageOptions& options) {
  if (options.gpu && options.cache == ImageCache::kDecoded) {
    throw UsageError("images decoded on a GPU are not kept: cache the files");
  }
  std::shared_ptr<const ImageSource> source = OpenImageSource(options.source);
  std::shared_ptr<const ClassMasks> masks;
  if (options.masks && !options.masks->folder.empty()) {
    masks = OpenMasks(*options.masks, source);
  }
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
  std::shared_ptr<SampleRecord> record = RecordOf(source);
  return std::make_shared<Images>(std::move(source), std::move(masks), std::move(decoded),
                                  std::move(record), options, /*augments=*/true);
}

}  // namespace lockstep
