#include "data/images/masks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/files/readable_file.h"
#include "base/in_threads.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sample_record.h"
#include "data/images/image_decoder.h"
#include "data/images/image_folder.h"
#include "data/images/image_format.h"
#include "data/images/image_names.h"
#include "data/images/png_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int16_t kNone = -1;
constexpr int kValues = 256;

void Decode(const std::string& path, Mask& mask) {
  const std::span<const std::byte> file = ReadableFile(path).ReadWhole(mask.file);
  if (file.empty()) throw DataError("empty file");
  mask.file_hash = SampleRecord::HashOf(file);
  if (FormatOf(file) != ImageFormat::kPng) throw DataError("not a PNG file, which masks are");
  mask.size = PngSize(file);
  CheckImageSize(mask.size);
  mask.pixels.resize(mask.size.width * mask.size.height);
  DecodePngMask(file, mask.pixels.data());
}

// For each value, the index of the first mask that has it; nullopt if no mask has it.
using FirstMasks = std::array<std::optional<int64_t>, kValues>;

FirstMasks LookAtAll(const Masks& masks, bool skip_bad, int threads) {
  FirstMasks first;
  std::mutex mutex;
  InThreads(threads, masks.size(), [&](int64_t i) {
    static thread_local Mask mask;
    std::array<bool, kValues> has{};
    try {
      masks.Read(i, mask);
    } catch (const Error& error) {
      if (!skip_bad || error.status() != ExitStatus::kData) throw;
      return;
    }
    for (const uint8_t value : mask.pixels) has[value] = true;
    const std::lock_guard lock(mutex);
    for (int value = 0; value < kValues; ++value) {
      if (has[value] && (!first[value] || i < *first[value])) first[value] = i;
    }
  });
  return first;
}

// Throws Error (kData) for masks in `folder` whose pixels all have the value `value` (nullopt: none of them has a
// class) or, if `has_ignored`, the value `ignored`, which is no class. `is_given` says whether the user gave `ignored`.
[[noreturn]] void RefuseOneClass(const std::string& folder, std::optional<int> value, int ignored,
                                 bool has_ignored, bool is_given) {
  constexpr const char* kNothing = "there is nothing to learn";
  if (!value) {
    throw DataError(
        "{}: masks without a class: each pixel has the value {}, which is no class: {}: name the "
        "values of the classes with data.images.mask_values",
        folder, ignored, kNothing);
  }
  if (!has_ignored) {
    throw DataError(
        "{}: masks of one class alone: each pixel has the value {}: {}: give masks of two classes",
        folder, *value, kNothing);
  }
  throw DataError(
      "{}: masks of one class alone: each pixel has the value {}, or {}, which is no class: {}: if "
      "{} is a class, set data.images.mask_values: [{}, {}]{}",
      folder, *value, ignored, kNothing, ignored, std::min(*value, ignored),
      std::max(*value, ignored), is_given ? " instead of data.images.mask_ignored" : "");
}

std::string Join(const std::vector<int>& values) {
  constexpr size_t kMost = 12;
  if (values.size() <= kMost) return fmt::format("{}", fmt::join(values, ", "));
  return fmt::format("{}, ... ({} in all)", fmt::join(values.begin(), values.begin() + kMost, ", "),
                     values.size());
}

}  // namespace

Masks::Masks(std::string folder, std::shared_ptr<const ImageSource> images)
    : folder_(std::move(folder)), images_(std::move(images)) {
  std::error_code error;
  if (!fs::is_directory(folder_, error)) throw DataError("{}: no such folder", folder_);
  FindMasksOfAnyCase();
  std::mutex mutex;
  int64_t missing = 0;
  int64_t first = size();
  InThreads(ReadingThreads(), size(), [&](int64_t i) {
    if (StampOf(PathOf(i))) return;
    const std::lock_guard lock(mutex);
    ++missing;
    first = std::min(first, i);
  });
  if (missing == 0) return;
  throw DataError("{}: no mask: there is no {}{}: put it there, or the image elsewhere",
                  images_->NameOf(first), PathOf(first),
                  missing == 1   ? ""
                  : missing == 2 ? ", and another image has none"
                                 : fmt::format(", and {} other images have none", missing - 1));
}

// Finds the masks whose extension is not ".png" but, for example, ".PNG", and makes the remarks on what else lies in
// the folder.
void Masks::FindMasksOfAnyCase() {
  const ImageIndex listed = ListImageFolder(folder_);
  for (int64_t i = 0; i < listed.left_out().size(); ++i) {
    remarks_.push_back(fmt::format("{}/{}", folder_, listed.left_out()[i]));
  }
  const auto stem_of = [](std::string_view path) { return path.substr(0, path.rfind('.')); };
  std::unordered_set<std::string> stems;  // the paths of the images without extension
  for (int64_t i = 0; i < size(); ++i) stems.emplace(stem_of(images_->PathOf(i)));
  LeftOut left_out;
  // For each stem the first mask, in the order of names, whose extension is written otherwise than ".png".
  std::unordered_map<std::string, std::string> other_case;
  std::unordered_set<std::string> usual;  // the stems of masks whose extension is ".png"
  for (int64_t row = 0; row < listed.size(); ++row) {
    const std::string path = listed.PathWithClass(row);
    const std::string stem(stem_of(path));
    const bool is_usual = path.ends_with(".png");
    if (!IsMaskName(path) || !stems.contains(stem)) {
      left_out.Add(LeftOut::kMasks, path);
    } else if (is_usual) {
      usual.insert(stem);
    } else if (!other_case.emplace(stem, path).second) {
      left_out.Add(LeftOut::kMasks, path);
    }
  }
  for (const auto& [stem, path] : other_case) {
    if (usual.contains(stem)) left_out.Add(LeftOut::kMasks, path);
  }
  for (const std::string& line : left_out.Lines()) {
    remarks_.push_back(fmt::format("{}/{}", folder_, line));
  }
  for (int64_t i = 0; i < size() && !other_case.empty(); ++i) {
    const std::string stem(stem_of(images_->PathOf(i)));
    const auto mask = other_case.find(stem);
    if (mask != other_case.end() && !usual.contains(stem)) other_case_.emplace(i, mask->second);
  }
}

std::string Masks::PathOf(int64_t i) const {
  const auto mask = other_case_.find(i);
  return (fs::path(folder_) / (mask != other_case_.end()
                                   ? fs::path(mask->second)
                                   : fs::path(images_->PathOf(i)).replace_extension(".png")))
      .string();
}

void Masks::Read(int64_t i, Mask& mask) const {
  const std::string path = PathOf(i);
  try {
    Decode(path, mask);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with(path)) throw;
    throw Error(error.status(), fmt::format("{}: {}", path, what));
  }
}

MaskFindings FindMaskValues(const Masks& masks, const FindMaskOptions& options) {
  const FirstMasks first = LookAtAll(masks, options.skip_bad, options.threads);
  std::vector<int> found;
  for (int value = 0; value < kValues; ++value) {
    if (first[value]) found.push_back(value);
  }
  MaskFindings findings{.values = {.ignored = options.ignored}, .remarks = {}};
  std::vector<int>& values = findings.values.of_classes;
  if (found == std::vector{0, 255} && !options.ignored_is_given &&
      (options.classes == 0 || options.classes == 2)) {
    values = found;
    findings.remarks.push_back(fmt::format(
        "{}: the masks hold the values 0 and 255 alone, which are taken for the classes 0 and 1 "
        "(where 255 is to be no class, set data.images.mask_ignored: 255)",
        masks.folder()));
    return findings;
  }
  const bool has_ignored = std::erase(found, options.ignored) > 0;
  const int greatest = found.empty() ? 0 : found.back();
  const int limit = std::min(options.classes > 0 ? static_cast<int>(options.classes) : greatest + 1,
                             static_cast<int>(kIgnoredPixel));
  for (int value = 0; value < limit; ++value) values.push_back(value);
  if (greatest >= limit && !options.skip_bad) {
    Mask mask;
    masks.Read(*first[greatest], mask);
    MaskClasses(findings.values).Convert(masks.PathOf(*first[greatest]), mask);
  }
  if (found.size() == 1 || (found.empty() && has_ignored)) {
    RefuseOneClass(masks.folder(), found.empty() ? std::nullopt : std::optional(found.front()),
                   options.ignored, has_ignored, options.ignored_is_given);
  }
  if (options.classes == 0 && std::ssize(found) < greatest + 1) {
    findings.remarks.push_back(fmt::format(
        "{}: the masks hold the values {}: classes are counted from 0, so the model learns {}, of "
        "which some have no pixel; data.images.mask_values: [{}] would make {} classes of them",
        masks.folder(), Join(found), limit, Join(found), found.size()));
  }
  return findings;
}

void RequireTwoClasses(const Masks& masks, const MaskValues& values, int threads) {
  std::array<bool, kValues> is_class{};
  for (const int value : values.of_classes) is_class.at(value) = true;
  std::mutex mutex;
  std::set<int> found;  // the values of classes
  std::atomic<bool> has_ignored = false;
  // Whether there are two classes, or a mask that will be refused, or passed over, when its sample is read.
  std::atomic<bool> is_done = false;
  InThreads(threads, masks.size(), [&](int64_t i) {
    if (is_done) return;
    static thread_local Mask mask;
    try {
      masks.Read(i, mask);
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kData) throw;
      is_done = true;
      return;
    }
    const std::lock_guard lock(mutex);
    for (const uint8_t value : mask.pixels) {
      if (is_class[value]) {
        found.insert(value);
      } else if (value == values.ignored) {
        has_ignored = true;
      } else {
        is_done = true;
      }
    }
    if (found.size() >= 2) is_done = true;
  });
  if (is_done) return;
  RefuseOneClass(masks.folder(), found.empty() ? std::nullopt : std::optional(*found.begin()),
                 values.ignored, has_ignored, /*is_given=*/false);
}

MaskClasses::MaskClasses(const MaskValues& values)
    : classes_(values.of_classes.size()), ignored_(values.ignored) {
  of_value_.fill(kNone);
  of_value_.at(ignored_) = static_cast<int16_t>(kIgnoredPixel);
  for (size_t c = 0; c < classes_; ++c) {
    of_value_.at(values.of_classes[c]) = static_cast<int16_t>(c);
  }
}

void MaskClasses::Convert(const std::string& path, Mask& mask) const {
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    const int16_t label = of_value_[mask.pixels[i]];
    if (label == kNone) {
      const auto place = static_cast<int64_t>(i);
      throw DataError(
          "{}: row {}, column {}: {} is none of the {} classes' values, nor {}, which is no class "
          "(data.images.mask_values, data.classes)",
          path, place / mask.size.width, place % mask.size.width, mask.pixels[i], classes_,
          ignored_);
    }
    mask.pixels[i] = static_cast<uint8_t>(label);
  }
}

void CutMask(const Mask& mask, const Box& box, int64_t width, int64_t height, bool mirror,
             uint8_t* output) {
  const auto place = [](double begin, double length, int64_t i, int64_t count, int64_t size) {
    const double centre =
        begin + (static_cast<double>(i) + 0.5) * length / static_cast<double>(count);
    return std::clamp<int64_t>(static_cast<int64_t>(std::floor(centre)), 0, size - 1);
  };
  std::vector<int64_t> columns(width);
  for (int64_t x = 0; x < width; ++x) {
    columns[mirror ? width - 1 - x : x] = place(box.x, box.width, x, width, mask.size.width);
  }
  for (int64_t y = 0; y < height; ++y, output += width) {
    const uint8_t* const row =
        &mask.pixels[mask.size.width * place(box.y, box.height, y, height, mask.size.height)];
    for (int64_t x = 0; x < width; ++x) output[x] = row[columns[x]];
  }
}

}  // namespace lockstep
