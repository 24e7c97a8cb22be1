#include "prepare/image_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/say.h"
#include "data/images/image_folder.h"
#include "data/images/image_format.h"
#include "prepare/canonical_path.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool BeginsAsAnImage(const std::string& path) {
  std::array<std::byte, kFormatBytes> bytes;
  const size_t read = ReadableFile(path).ReadAt(0, bytes);
  return FormatOf(std::span(bytes).first(read)) != ImageFormat::kNone;
}

ImageFile StatusOf(const std::string& folder, std::string name) {
  const std::string path = (fs::path(folder) / name).native();
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw DataError("{}: cannot be opened: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path);
  // In a folder from another person, a link may point to any file, which would then be packed and passed on.
  if (fs::is_symlink(path) && !BeginsAsAnImage(path)) {
    throw DataError("{}: a link to a file that is not {}: remove it", path, kImageFormats);
  }
  return {.name = std::move(name), .stamp = StampOf(status)};
}

}  // namespace

std::vector<ImageFile> ListImages(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw DataError("{}: no such folder", folder);
  const ImageIndex index = ListImageFolder(folder);
  std::vector<ImageFile> files;
  for (int64_t row = 0; row < index.size(); ++row) {
    files.push_back(StatusOf(folder, index.PathWithClass(row)));
  }
  for (int64_t i = 0; i < index.left_out().size(); ++i) {
    Warn(fmt::format("{}/{}", folder, index.left_out()[i]));
  }
  if (files.empty()) throw DataError("{}: no {} files", folder, kImageExtensions);
  std::sort(files.begin(), files.end(),
            [](const ImageFile& a, const ImageFile& b) { return a.name < b.name; });
  return files;
}

std::string SourceLine(const std::string& folder, const std::vector<ImageFile>& files) {
  std::string text;
  for (const ImageFile& file : files) {
    text += fmt::format("{} {} {}\n", file.name, file.stamp.bytes, file.stamp.changed_ns);
  }
  return fmt::format("{} ({} images with hash {:016x})", CanonicalPath(folder), files.size(),
                     std::hash<std::string>()(text));
}

std::span<const std::byte> ReadImageFile(const std::string& folder, const ImageFile& file,
                                         std::vector<std::byte>& buffer) {
  const ReadableFile readable(folder + "/" + file.name);
  if (readable.stamp() != file.stamp)
    throw DataError("{}: has changed since the run began", readable.path());
  return readable.ReadWhole(buffer);
}

void RequireApart(const std::string& source, const std::string& destination) {
  const std::string from = CanonicalPath(source) + "/";
  const std::string to = CanonicalPath(destination) + "/";
  if (from.starts_with(to)) throw UsageError("{}: lies in {}, which is to be made", source, to);
  if (to.starts_with(from)) throw UsageError("{}: lies in {}, which is read", destination, source);
}

std::string FolderName(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (name.empty() || name == "/" || name == "." || name == ".." || name.ends_with("/..") ||
      name.ends_with("/.")) {
    throw UsageError("\"{}\": names no folder that can be made", path);
  }
  return name;
}

}  // namespace lockstep
