#include "data/images/open_images.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/hidden_name.h"
#include "base/small_letters.h"
#include "data/images/image_folder.h"
#include "data/images/image_names.h"
#include "data/images/image_shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool IsCompressedShardName(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string last = InSmallLetters(name.substr(dot));
  return last == ".tgz" ||
         (IsShardName(name.substr(0, dot)) && (last == ".gz" || last == ".zst" || last == ".xz" ||
                                               last == ".bz2" || last == ".lz4" || last == ".z"));
}

// The entries of a folder that decide how the folder is read: all shards, and for each of the other three kinds the
// first name in sorted order, which is empty if there is no entry of this kind.
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
    if (IsHiddenName(name)) return;
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

std::shared_ptr<const ImageSource> OpenImageSource(const ImageSourceOptions& options) {
  try {
    return Open(options);
  } catch (const fs::filesystem_error& error) {
    const std::string path = error.path1().empty() ? options.files[0] : error.path1().string();
    throw DataError("{}: cannot be listed: {}", path, error.code().message());
  }
}

}  // namespace lockstep
