#include "prepare/image_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/say.h"
#include "data/images/image_format.h"
#include "data/images/image_names.h"
#include "data/images/image_source.h"
#include "prepare/canonical_path.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool BeginsAsAnImage(const fs::path& path) {
  std::array<std::byte, kFormatBytes> bytes;
  const size_t read = ReadableFile(path.string()).ReadAt(0, bytes);
  return FormatOf(std::span(bytes).first(read)) != ImageFormat::kNone;
}

ImageFile StatusOf(const fs::path& path, const fs::path& folder) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw DataError("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path.string());
  // In a folder from another person, a link may point to any file, which would then be packed and passed on.
  if (fs::is_symlink(path) && !BeginsAsAnImage(path)) {
    throw DataError("{}: a link to a file that is not {}: remove it", path.string(), kImageFormats);
  }
  return {.name = path.lexically_relative(folder).native(), .stamp = StampOf(status)};
}

}  // namespace

std::vector<ImageFile> ListImages(const std::string& folder) {
  const fs::path root(folder);
  std::vector<ImageFile> files;
  LeftOut left_out;
  // `is_class` says whether `entry` lies directly in `folder`. If so, and if `entry` is a folder, it is the folder of a
  // class.
  const auto add = [&](const fs::directory_entry& entry, bool is_class) {
    const bool is_folder = entry.is_directory();
    if (!is_folder && IsImageName(entry.path().native())) {
      files.push_back(StatusOf(entry.path(), root));
    } else if (is_folder ? !is_class && entry.is_symlink()
                         : !entry.path().filename().native().starts_with('.')) {
      left_out.Add(is_folder ? LeftOut::kLinksToFolders : LeftOut::KindOf(entry.path().native()),
                   entry.path().native());
    }
  };
  try {
    if (!fs::is_directory(root)) throw DataError("{}: no such folder", folder);
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      add(entry, /*is_class=*/true);
      if (!entry.is_directory()) continue;
      for (const fs::directory_entry& below : fs::recursive_directory_iterator(entry.path())) {
        add(below, /*is_class=*/false);
      }
    }
  } catch (const fs::filesystem_error& error) {
    const std::string path = error.path1().empty() ? folder : error.path1().string();
    throw DataError("{}: cannot be listed: {}", path, error.code().message());
  }
  for (const std::string& line : left_out.Lines()) Warn(line);
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
