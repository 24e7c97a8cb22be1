#include "data/images/image_source.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/small_letters.h"
#include "data/images/image_folder.h"
#include "data/images/image_format.h"
#include "data/images/image_shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// In small letters, without its dot; empty: it has none, or is hidden.
std::string ExtensionOf(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  if (dot == name.npos || name.starts_with('.')) return "";
  return InSmallLetters(name.substr(dot + 1));
}

bool IsCompressedShardName(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view last = name.substr(dot);
  return last == ".tgz" ||
         (IsShardName(name.substr(0, dot)) && (last == ".gz" || last == ".zst" || last == ".xz" ||
                                               last == ".bz2" || last == ".lz4" || last == ".Z"));
}

// What lies in a folder, of what matters here: the first of each by name; empty: none.
struct Content {
  std::vector<std::string> shards;
  std::string folder;
  std::string image;
  std::string compressed;
};

Content ContentOf(const std::string& path) {
  Content content;
  const auto keep_first = [&](std::string& first, std::string_view name) {
    if (first.empty() || name < first) first = name;
  };
  VisitDirectory(path, [&](std::string_view name, EntryKind kind) {
    if (name.starts_with('.')) return;
    if (kind != EntryKind::kOther) {
      keep_first(content.folder, name);
    } else if (IsShardName(name)) {
      content.shards.push_back((fs::path(path) / name).string());
    } else if (IsImageName(name)) {
      keep_first(content.image, name);
    } else if (IsCompressedShardName(name)) {
      keep_first(content.compressed, name);
    }
  });
  std::ranges::sort(content.shards);
  return content;
}

Error Compressed(const std::string& path) {
  return DataError("{}: a compressed archive: decompress it (images do not get smaller)", path);
}

std::shared_ptr<const ImageSource> OpenFolder(const std::string& path,
                                              const ImageSourceOptions& options) {
  if (!fs::is_directory(path)) throw DataError("{}: no such folder", path);
  const Content content = ContentOf(path);
  const std::string& other = content.folder.empty() ? content.image : content.folder;
  if (!content.shards.empty() && !other.empty()) {
    throw DataError("{}: tar files and {} \"{}\": put one of the two elsewhere", path,
                    content.folder.empty() ? "the image" : "the folder", other);
  }
  if (!content.compressed.empty() && other.empty()) {
    throw Compressed(path + "/" + content.compressed);
  }
  return content.shards.empty() ? OpenImageFolder(path, options)
                                : OpenImageShards(content.shards, options);
}

std::shared_ptr<const ImageSource> Open(const ImageSourceOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.empty()) throw UsageError("IMAGES takes a folder, or tar files");
  const bool is_shard = IsShardName(files[0]) || IsCompressedShardName(files[0]);
  if (files.size() == 1 && (!is_shard || fs::is_directory(files[0]))) {
    return OpenFolder(files[0], options);
  }
  std::set<std::string> seen;
  for (const std::string& file : files) {
    if (IsCompressedShardName(file)) throw Compressed(file);
    if (!IsShardName(file)) {
      throw UsageError("IMAGES takes one folder, or tar files: {} is no tar file", file);
    }
    if (!seen.insert(fs::absolute(file).lexically_normal()).second) {
      throw UsageError("{}: the same tar file twice", file);
    }
  }
  return OpenImageShards(files, options);
}

}  // namespace

bool IsImageName(std::string_view name) {
  const std::string extension = ExtensionOf(name);
  return extension == "jpg" || extension == "jpeg" || extension == "png" || extension == "webp" ||
         extension == "bmp";
}

LeftOut::Kind LeftOut::KindOf(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kOtherImages{
      "gif", "tif", "tiff", "avif", "heic", "heif", "jfif", "jxl", "ppm"};
  return std::ranges::find(kOtherImages, ExtensionOf(name)) != kOtherImages.end() ? kImages
                                                                                  : kFiles;
}

void LeftOut::Add(const LeftOut& more, std::string_view prefix) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Some& some = more.some_[kind];
    if (some.count > 0) Add(static_cast<Kind>(kind), some.count, prefix, some.first);
  }
}

void LeftOut::Add(Kind kind, int64_t count, std::string_view prefix, std::string_view name) {
  Some& some = some_[kind];
  if (prefix.empty() && some.count > 0 && some.first <= name) {  // most of them
    some.count += count;
    return;
  }
  std::string path = fmt::format("{}{}", prefix, name);
  if (some.count == 0 || path < some.first) some.first = std::move(path);
  some.count += count;
}

std::vector<std::string> LeftOut::Lines() const {
  static const std::array<std::string, kKinds> kWhy{
      fmt::format("not {}: convert such images (ImageMagick's mogrify -format png does)",
                  kImageFormats),
      fmt::format("not named {}", kImageExtensions),
      "a link to a folder, which is followed for a class only"};
  std::vector<std::string> lines;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Some& some = some_[kind];
    if (some.count == 0) continue;
    lines.push_back(fmt::format("{}{} left out: {}", some.first,
                                some.count == 1 ? " is"
                                : some.count == 2
                                    ? " and another one are"
                                    : fmt::format(" and {} others are", some.count - 1),
                                kWhy[kind]));
  }
  return lines;
}

bool IsShardName(std::string_view name) { return name.ends_with(".tar"); }

std::shared_ptr<const ImageSource> OpenImageSource(const ImageSourceOptions& options) {
  try {
    return Open(options);
  } catch (const fs::filesystem_error& error) {
    const std::string path = error.path1().empty() ? options.files[0] : error.path1().string();
    throw DataError("{}: cannot be listed: {}", path, error.code().message());
  }
}

}  // namespace lockstep
