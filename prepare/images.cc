#include "prepare/images.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/in_threads.h"
#include "data/images/image_decoder.h"
#include "data/images/image_format.h"
#include "data/images/jpeg_encoder.h"
#include "data/images/orientation.h"
#include "data/images/resize.h"
#include "prepare/image_files.h"
#include "prepare/output_folder.h"
#include "prepare/pool.h"
#include "prepare/work_progress.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr JpegKind kKind{.name = "4:2:0", .h_sampling = 2, .v_sampling = 2};
constexpr size_t kKeptBytes = size_t{128} << 20;  // the most bytes of buffers that a thread keeps
constexpr char kSkippedName[] = "skipped.txt";

// Returns the name of the file that an image becomes.
std::string TargetOf(const std::string& name) {
  fs::path path(name);
  const std::string extension = path.extension().string();
  if (std::tolower(static_cast<unsigned char>(extension[1])) != 'j') path.replace_extension(".jpg");
  return path.native();
}

std::vector<std::string> TargetsOf(const std::vector<ImageFile>& files) {
  std::unordered_map<std::string, const std::string*> source_of;
  std::vector<std::string> targets;
  for (const ImageFile& file : files) {
    targets.push_back(TargetOf(file.name));
    const auto [other, is_new] = source_of.emplace(targets.back(), &file.name);
    if (!is_new) {
      throw DataError("{} and {} would both become {}: rename one of them", *other->second,
                      file.name, targets.back());
    }
  }
  for (const std::string& target : targets) {
    for (fs::path folder = fs::path(target).parent_path(); !folder.empty();
         folder = folder.parent_path()) {
      const auto file = source_of.find(folder.native());
      if (file == source_of.end()) continue;
      throw DataError("{} would become a file where folder {} is: rename one of them",
                      *file->second, folder.native());
    }
  }
  return targets;
}

// The buffers and decoders that a thread keeps from one image to the next.
struct Workshop {
  std::vector<std::byte> file;
  ImageDecoder decoder;
  Resizer resizer;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> as_stored;  // pixels of a picture before it is turned
};

// Returns the JPEG file that `file` becomes, or an empty text if `file` is copied as it is.
std::string Convert(std::span<const std::byte> file, const PrepareImagesOptions& options,
                    Workshop& workshop) {
  const ImageSize from = workshop.decoder.Open(file);
  const int64_t shorter = std::min(from.width, from.height);
  const auto scaled = [&](int64_t side) {
    return shorter <= options.size ? side : side * options.size / shorter;
  };
  const ImageSize to{scaled(from.width), scaled(from.height)};
  const Box all{0, 0, static_cast<double>(from.width), static_cast<double>(from.height)};
  const ImageDecoder::Part part = workshop.decoder.Decode(all, to.width, to.height);
  const Orientation orientation = options.exif_orientation ? OrientationOf(file) : Orientation{};
  const bool is_jpeg = FormatOf(file) == ImageFormat::kJpeg;
  if (shorter <= options.size && is_jpeg && !orientation.turns()) return "";
  workshop.pixels.resize(3 * to.width * to.height);
  workshop.resizer.Resize(part.pixels, part.box, to.width, to.height, /*mirror=*/false,
                          workshop.pixels.data());
  const ImageSize turned = TurnedSize(to, orientation);
  if (orientation.turns()) {
    std::swap(workshop.pixels, workshop.as_stored);
    workshop.pixels.resize(workshop.as_stored.size());
    Turn({.pixels = workshop.as_stored.data(),
          .width = to.width,
          .height = to.height,
          .stride = 3 * to.width},
         orientation, /*mirror=*/false, workshop.pixels.data());
  }
  return EncodeJpeg(kKind, workshop.pixels.data(), turned.width, turned.height, options.quality);
}

// The state of one thread: its buffers and the counts of its work. A Pool lends a Part to one thread at a time.
struct Part {
  explicit Part(const OutputFolder& output) : batch(output) {}

  std::unique_ptr<Workshop> workshop{};
  FileBatch batch;
  int64_t copied = 0;
  int64_t written = 0;
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  std::set<std::string> skipped{};  // lines of skipped.txt
};

// Reads and converts one image. If the image cannot be decoded and options.skip_bad is set, adds the reason to
// part.skipped.
void PrepareImage(const PrepareImagesOptions& options, const ImageFile& image,
                  const std::string& target, Part& part) {
  if (!part.workshop) part.workshop = std::make_unique<Workshop>();
  Workshop& workshop = *part.workshop;
  std::span<const std::byte> file;
  std::string converted;
  try {
    file = ReadImageFile(options.source, image, workshop.file);
    try {
      converted = Convert(file, options, workshop);
    } catch (const Error& error) {
      throw Error(error.status(),
                  fmt::format("{}/{}: {}", options.source, image.name, error.what()));
    }
  } catch (const std::bad_alloc&) {
    // The image may be undamaged, so it is not skipped.
    throw UsageError("{}/{}: there is not enough memory to decode it: fewer --threads",
                     options.source, image.name);
  } catch (const Error& error) {
    if (!options.skip_bad || error.status() != ExitStatus::kData) throw;
    part.skipped.insert(fmt::format("{}\t{}\n", image.name, error.what()));
    part.workshop.reset();  // frees the memory that the decoder may hold
    return;
  }
  ++(converted.empty() ? part.copied : part.written);
  const std::span<const std::byte> content =
      converted.empty() ? file : std::as_bytes(std::span(converted));
  part.batch.Add(target, content);
  part.bytes_in += image.stamp.bytes;
  part.bytes_out += static_cast<int64_t>(content.size());
  // Frees the buffers after a huge image. Otherwise each thread would keep that much memory until the end.
  if (workshop.file.size() + workshop.pixels.size() + workshop.as_stored.size() > kKeptBytes)
    part.workshop.reset();
}

}  // namespace

std::string PrepareImages(const PrepareImagesOptions& options) {
  RequireApart(options.source, options.destination);
  const std::string destination = FolderName(options.destination);
  const std::vector<ImageFile> files = ListImages(options.source);
  const std::vector<std::string> targets = TargetsOf(files);
  OutputFolder output(
      destination, {destination},
      {"prepare images", SourceLine(options.source, files), fmt::format("--size {}", options.size),
       fmt::format("--quality {}{}", options.quality,
                   options.exif_orientation ? " --exif-orientation" : "")});
  if (output.is_committed()) return fmt::format("{}: complete", destination);

  std::set<std::string> folders;
  std::vector<size_t> missing;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!output.Has(targets[i])) missing.push_back(i);
    folders.insert(fs::path(targets[i]).parent_path());
  }
  for (const std::string& folder : folders) output.MakeFolder(folder);

  Pool<Part> parts([&] { return std::make_unique<Part>(output); });
  const auto count = static_cast<int64_t>(missing.size());
  const auto kept = static_cast<int64_t>(files.size()) - count;
  WorkProgress progress(options.live, "images", static_cast<double>(files.size()),
                        static_cast<double>(kept));
  InThreads(options.threads, count, [&](int64_t item) {
    const size_t i = missing[item];
    parts.With([&](Part& part) { PrepareImage(options, files[i], targets[i], part); });
    progress.Add(1);
  });

  Part sum(output);
  for (const std::unique_ptr<Part>& part : parts.TakeAll()) {
    part->batch.Flush();
    sum.copied += part->copied;
    sum.written += part->written;
    sum.bytes_in += part->bytes_in;
    sum.bytes_out += part->bytes_out;
    sum.skipped.merge(part->skipped);
  }
  if (sum.skipped.size() == files.size()) {
    throw DataError("{}: none of {} images can be read: {}", options.source, files.size(),
                    *sum.skipped.begin());
  }
  std::string skipped;
  for (const std::string& line : sum.skipped) skipped += line;
  if (!skipped.empty()) WriteOutput(output, kSkippedName, skipped);
  output.Commit({{"", destination}});
  return fmt::format(
      "{}: {} images: {} resized or converted, {} copied{}; {:.1f} MB became {:.1f} MB in {:.2f} "
      "s{}",
      destination, sum.written + sum.copied + kept, sum.written, sum.copied,
      kept > 0 ? fmt::format(", {} there before", kept) : "",
      1e-6 * static_cast<double>(sum.bytes_in), 1e-6 * static_cast<double>(sum.bytes_out),
      progress.seconds(),
      skipped.empty()
          ? ""
          : fmt::format("; {} skipped, see {}/{}", sum.skipped.size(), destination, kSkippedName));
}

}  // namespace lockstep
