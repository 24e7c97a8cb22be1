#include "data/images/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/hidden_name.h"
#include "base/files/readable_file.h"
#include "base/in_threads.h"
#include "data/dataset/sample_record.h"
#include "data/images/image_list.h"
#include "data/images/image_names.h"
#include "data/images/index_cache.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A folder that was listed, with the names of its images and of its subfolders in sorted order.
struct Folder {
  std::string path;  // the path below the root; empty: the root itself
  Stamp stamp;
  TextList images;
  TextList folders;
  LeftOut left_out;
  // The index of the folder's first subfolder in the result of ListAll(); the other subfolders follow the first.
  int64_t first_folder = 0;
};

TextList Sorted(const TextList& names) {
  std::vector<std::string_view> views;
  views.reserve(names.size());
  for (int64_t i = 0; i < names.size(); ++i) views.push_back(names[i]);
  std::ranges::sort(views);
  TextList sorted;
  for (const std::string_view name : views) sorted.Add(name);
  return sorted;
}

std::string PathOf(const std::string& root, const std::string& below) {
  return below.empty() ? root : root + "/" + below;
}

// Reads the entries of `folder`, and sets its stamp, images, folders and left_out. `is_root` says whether `folder` is
// the root, whose subfolders are the classes.
void List(const std::string& root, bool is_root, Folder& folder) {
  TextList images, folders;
  folder.stamp =
      VisitDirectory(PathOf(root, folder.path), [&](std::string_view name, EntryKind kind) {
        if (IsHiddenName(name)) {
          // Nobody takes other hidden files, such as .DS_Store, for data.
          if (kind != EntryKind::kOther || IsImageName(name)) {
            folder.left_out.Add(LeftOut::kHidden, name);
          }
        } else if (kind == EntryKind::kFolder || (is_root && kind == EntryKind::kLinkToFolder)) {
          folders.Add(name);
        } else if (kind == EntryKind::kLinkToFolder) {
          folder.left_out.Add(LeftOut::kLinksToFolders, name);
        } else if (IsImageName(name)) {
          images.Add(name);
        } else {
          folder.left_out.Add(LeftOut::KindOf(name), name);
        }
      });
  folder.images = Sorted(images);
  folder.folders = Sorted(folders);
}

std::vector<Folder> ListAll(const std::string& root) {
  std::vector<Folder> all(1);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.size();
    InThreads(ReadingThreads(), static_cast<int64_t>(end - begin),
              [&](int64_t i) { List(root, begin + i == 0, all[begin + i]); });
    for (; begin < end; ++begin) {
      all[begin].first_folder = static_cast<int64_t>(all.size());
      for (int64_t i = 0; i < all[begin].folders.size(); ++i) {
        Folder next;
        next.path = all[begin].path.empty() ? "" : all[begin].path + "/";
        next.path += all[begin].folders[i];
        all.push_back(std::move(next));
      }
    }
  }
  return all;
}

// Moves the names of the images in all[place] and in its subfolders to `paths`, in sorted order. `prefix` is the path
// of all[place] below the class.
void Collect(std::vector<Folder>& all, int64_t place, const std::string& prefix, TextList& paths) {
  const TextList images = std::exchange(all[place].images, {});
  const TextList folders = std::exchange(all[place].folders, {});
  const int64_t first_folder = all[place].first_folder;
  int64_t image = 0;
  for (int64_t i = 0; i <= folders.size(); ++i) {
    while (image < images.size() && (i == folders.size() || images[image] < folders[i])) {
      paths.Add(prefix, images[image++]);
    }
    if (i < folders.size()) {
      Collect(all, first_folder + i, fmt::format("{}{}/", prefix, folders[i]), paths);
    }
  }
}

ImageColumns Build(const std::string& root) {
  std::vector<Folder> all = ListAll(root);
  ImageColumns columns;
  LeftOut left_out;
  for (const Folder& folder : all) {
    columns.sources.Add(folder.path);
    columns.stamps.push_back(folder.stamp);
    left_out.Add(folder.left_out, folder.path.empty() ? "" : folder.path + "/");
  }
  for (const std::string& line : left_out.Lines()) columns.left_out.Add(line);
  const TextList unlabelled = std::exchange(all[0].images, {});
  columns.classes = all[0].folders;
  for (int64_t c = 0; c < columns.classes.size(); ++c) {
    columns.first_of_class.push_back(columns.paths.size());
    Collect(all, all[0].first_folder + c, "", columns.paths);
  }
  columns.first_of_class.push_back(columns.paths.size());
  for (int64_t i = 0; i < unlabelled.size(); ++i) columns.paths.Add(unlabelled[i]);
  return columns;
}

// Returns whether no entry was added to, or removed from, any listed folder since the index was made.
bool IsCurrent(const std::string& root, const ImageIndex& index) {
  return StampsHold(index,
                    [&](int64_t i) { return PathOf(root, std::string(index.sources()[i])); });
}

std::string NameIn(const std::string& root, const ImageIndex& index, int64_t row) {
  return fmt::format("{}/{}", root, index.PathWithClass(row));
}

class ImageFolder : public ListedImages {
 public:
  ImageFolder(std::string root, ImageList list)
      : ListedImages(std::move(list)), root_(std::move(root)) {}

  std::string NameOf(int64_t i) const override {
    return NameIn(root_, list_.index(), list_.RowOf(i));
  }

  std::span<const std::byte> Load(int64_t i, std::vector<std::byte>& buffer) const override {
    const ReadableFile file(NameOf(i));
    if (file.bytes() > kMostImageBytes) {
      throw DataError("{}: {} bytes are too many for an image", file.path(), file.bytes());
    }
    return file.ReadWhole(buffer);
  }

  std::vector<int64_t> ChangedOf(int64_t time_ns, std::vector<int64_t> samples) const override {
    return ChangedFiles(time_ns, samples, [&](int64_t i) { return NameOf(i); });
  }

 private:
  std::string root_;
};

}  // namespace

ImageIndex ListImageFolder(const std::string& folder) {
  return CachedIndex(
      "folder\n" + fs::absolute(folder).lexically_normal().string(),
      [&](const ImageIndex& index) { return IsCurrent(folder, index); },
      [&] { return Build(folder); });
}

std::shared_ptr<const ImageSource> OpenImageFolder(const std::string& folder,
                                                   const ImageSourceOptions& options) {
  const ImageIndex index = ListImageFolder(folder);
  return std::make_shared<ImageFolder>(
      folder,
      ImageList(index, options,
                {.all = folder,
                 .image = [&](int64_t row) { return NameIn(folder, index, row); },
                 .of_class =
                     [&](int64_t c) { return fmt::format("{}/{}", folder, index.classes()[c]); }}));
}

}  // namespace lockstep
