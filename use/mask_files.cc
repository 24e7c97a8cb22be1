#include "use/mask_files.h"

#include <cstddef>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/output_target.h"
#include "data/images/image_decoder.h"
#include "data/images/image_source.h"
#include "data/images/masks.h"
#include "data/images/open_images.h"
#include "data/images/png_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (fs::is_directory(folder)) return;
  throw CheckpointError("{}: the folder for masks cannot be made: {}", folder.string(),
                        error ? error.message() : "a file has this name");
}

}  // namespace

MaskFiles::MaskFiles(std::string folder, KeptFiles kept)
    : folder_(std::move(folder)), kept_(std::move(kept)) {
  // A name that any mask may have. The folder is not made if no mask may lie in it.
  kept_.Require((fs::path(folder_) / "mask.png").string(), folder_);
  MakeFolder(folder_);
}

std::string MaskFiles::PathOf(const std::string& image) const {
  return (fs::path(folder_) / fs::path(image).replace_extension(".png")).string();
}

void MaskFiles::Prepare(std::string files, std::vector<std::string> images,
                        std::vector<int64_t> numbers) {
  files_ = std::move(files);
  images_ = std::move(images);
  numbers_ = std::move(numbers);
  std::map<std::string, const std::string*> image_of;
  for (const std::string& image : images_) {
    const auto [other, is_new] = image_of.emplace(PathOf(image), &image);
    if (is_new) continue;
    throw DataError("{} and {} would both have the mask {}: rename one of them", *other->second,
                    image, other->first);
  }
  for (const auto& [path, image] : image_of) {
    MakeFolder(fs::path(path).parent_path());
    const OutputTarget checked(path, kept_);
  }
}

void MaskFiles::Write(std::span<const uint8_t> classes, const ImageSize& size,
                      std::span<const int32_t> values) const {
  const auto source = OpenImageSource({.files = {files_}, .label_optional = true});
  const auto pixels = static_cast<size_t>(size.width * size.height);
  const Box all = {0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
  ImageDecoder decoder;
  std::vector<std::byte> buffer;
  std::vector<uint8_t> levels;
  Mask mask{.size = size, .pixels = {}, .file = {}};
  for (size_t i = 0; i < images_.size(); ++i) {
    const ImageSize image = decoder.Open(source->Load(numbers_[i], buffer));
    const std::span<const uint8_t> of_image = classes.subspan(i * pixels, pixels);
    mask.pixels.clear();
    for (const uint8_t label : of_image) {
      mask.pixels.push_back(static_cast<uint8_t>(values[label]));
    }
    levels.resize(image.width * image.height);
    CutMask(mask, all, image.width, image.height, /*mirror=*/false, levels.data());
    const std::string file = EncodeGreyPng(image, levels);
    const std::string path = PathOf(images_[i]);
    OutputTarget(path, kept_).Write([&](const AppendBytes& append) {
      append(std::as_bytes(std::span(file)));
    });
  }
}

}  // namespace lockstep
