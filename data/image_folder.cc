#include "data/image_folder.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/crop.h"
#include "data/image_decoder.h"
#include "data/resize.h"
#include "data/sample_random.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChannels = 3;
constexpr int64_t kLargestFile = int64_t{1} << 30;
constexpr size_t kKeptBytes = size_t{128} << 20;  // of a thread's memory, for the next image

bool IsImageName(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

// Paths one after the other, below one folder.
class Paths {
 public:
  void Add(std::string_view path) {
    text_ += path;
    ends_.push_back(text_.size());
  }
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  const std::string& text() const { return text_; }
  std::string_view operator[](int64_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
};

struct Index {
  std::string folder;
  std::vector<std::string> classes;
  Paths paths;                          // relative to the folder
  std::vector<int64_t> first_of_class;  // and of the files without a label, which come last

  int64_t LabelOf(int64_t sample) const {
    const auto next = std::upper_bound(first_of_class.begin(), first_of_class.end(), sample);
    const int64_t label = next - first_of_class.begin() - 1;
    return label < static_cast<int64_t>(classes.size()) ? label : Dataset::kNoLabel;
  }
};

std::vector<fs::path> Sorted(std::vector<fs::path> paths) {
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The images below `folder`, at any depth, in the order of their names.
std::vector<fs::path> ImagesBelow(const fs::path& folder) {
  std::vector<fs::path> images;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (IsImageName(entry.path()) && !entry.is_directory()) images.push_back(entry.path());
  }
  return Sorted(std::move(images));
}

Index MakeIndex(const ImageFolderOptions& options) {
  const fs::path root(options.folder);
  if (!fs::is_directory(root)) throw DataError("{}: no such folder", options.folder);
  std::vector<fs::path> folders;
  std::vector<fs::path> unlabelled;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) {
      folders.push_back(entry.path());
    } else if (IsImageName(entry.path())) {
      unlabelled.push_back(entry.path());
    }
  }
  if (!unlabelled.empty() && !options.label_optional) {
    throw DataError("{}: an image beside the classes: put each into the folder of its class",
                    Sorted(unlabelled).front().string());
  }

  Index index{.folder = options.folder, .classes = options.classes};
  std::map<std::string, fs::path> folder_of;
  for (const fs::path& folder : folders) folder_of.emplace(folder.filename(), folder);
  if (index.classes.empty()) {
    for (const auto& [name, folder] : folder_of) index.classes.push_back(name);
  }
  for (const auto& [name, folder] : folder_of) {
    if (std::find(index.classes.begin(), index.classes.end(), name) != index.classes.end()) {
      continue;
    }
    throw DataError("{}: no class \"{}\" was trained on (the {} classes are {}, ...)",
                    folder.string(), name, index.classes.size(), index.classes.front());
  }
  const auto add = [&](const std::vector<fs::path>& images) {
    index.first_of_class.push_back(index.paths.size());
    for (const fs::path& image : images) {
      index.paths.Add(image.lexically_relative(root).native());
    }
  };
  for (const std::string& name : index.classes) {
    const auto folder = folder_of.find(name);
    add(folder == folder_of.end() ? std::vector<fs::path>() : ImagesBelow(folder->second));
  }
  add(Sorted(std::move(unlabelled)));
  if (index.paths.size() == 0) {
    throw DataError("{}: no .jpg, .jpeg or .png files: there is to be a folder for each class",
                    options.folder);
  }
  return index;
}

// The file's bytes, in `buffer`.
std::span<const std::byte> ReadFile(const std::string& path, std::vector<std::byte>& buffer) {
  struct File {
    int descriptor;
    ~File() {
      if (descriptor >= 0) close(descriptor);
    }
  };
  const auto fail = [&](const char* what) {
    const std::string text = fmt::format("{}: cannot be {}: {}", path, what, std::strerror(errno));
    // The machine's fault, not the file's.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) throw UsageError("{}", text);
    throw DataError("{}", text);
  };
  // Not blocking: a pipe would wait for its writer.
  const File file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) fail("opened");
  if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path);
  if (status.st_size > kLargestFile) {
    throw DataError("{}: {} bytes are too many for an image", path, status.st_size);
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (buffer.size() < size) buffer.resize(size);
  size_t read_bytes = 0;
  while (read_bytes < size) {
    const ssize_t got = read(file.descriptor, buffer.data() + read_bytes, size - read_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) break;
    read_bytes += got;
  }
  return {buffer.data(), read_bytes};
}

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

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::shared_ptr<const Index> index, const ImageFolderOptions& options, bool augments)
      : index_(std::move(index)),
        options_(options),
        augments_(augments),
        spec_{.shape = {kChannels, options.size, options.size},
              .dtype = at::kByte,
              .channels_last = true,
              .classes = static_cast<int64_t>(index_->classes.size()),
              .class_names = index_->classes} {}

  int64_t size() const override { return index_->paths.size(); }
  const SampleSpec& spec() const override { return spec_; }

  std::shared_ptr<const Dataset> Plain() const override {
    return std::make_shared<ImageFolder>(index_, options_, /*augments=*/false);
  }

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    static thread_local std::unique_ptr<Workshop> kept;
    if (!kept) kept = std::make_unique<Workshop>();
    Workshop& workshop = *kept;
    Clocks::Clock::time_point begin = Clocks::Clock::now();
    const std::string path = fmt::format("{}/{}", index_->folder, index_->paths[index]);
    const std::span<const std::byte> file = ReadFile(path, workshop.file);
    clocks_.Count(Clocks::kReading, begin);

    SampleRandom random(options_.seed, epoch, index);
    const ImageDecoder::Part part = [&] {
      try {
        const ImageSize image = workshop.decoder.Open(file);
        const Box box = augments_ ? RandomCrop(image, options_.crop, random)
                                  : CenterCrop(image, options_.center);
        return workshop.decoder.Decode(box, options_.size, options_.size);
      } catch (const Error& error) {
        throw Error(error.status(), fmt::format("{}: {}", path, error.what()));
      } catch (const std::bad_alloc&) {
        throw DataError("{}: there is not enough memory to decode it", path);
      }
    }();
    clocks_.Count(Clocks::kDecoding, begin);

    const bool mirrored = augments_ && options_.mirror && random.Uniform() < 0.5;
    workshop.resizer.Resize(part.pixels, part.box, options_.size, options_.size, mirrored,
                            reinterpret_cast<uint8_t*>(input));
    clocks_.Count(Clocks::kResizing, begin);

    const int64_t label = index_->LabelOf(index);
    std::memcpy(target, &label, sizeof(label));
    // One huge image must not cost every thread its memory for good.
    const size_t pixel_bytes = part.pixels.stride * part.pixels.height;
    if (workshop.file.size() + pixel_bytes > kKeptBytes) kept.reset();
  }

  std::string Fingerprint() const override {
    const std::hash<std::string> hash;
    return fmt::format("images {:016x} of classes {:016x}", hash(index_->paths.text()),
                       hash(fmt::format("{}", fmt::join(index_->classes, "\n"))));
  }

  ReadTimes times() const override {
    const auto seconds = [&](Clocks::Phase phase) {
      return 1e-9 * static_cast<double>(clocks_.ns[phase].load(std::memory_order_relaxed));
    };
    return {.files = seconds(Clocks::kReading),
            .decoding = seconds(Clocks::kDecoding),
            .resizing = seconds(Clocks::kResizing)};
  }

 private:
  std::shared_ptr<const Index> index_;
  ImageFolderOptions options_;
  bool augments_;
  mutable Clocks clocks_;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Dataset> OpenImageFolder(const ImageFolderOptions& options) {
  try {
    return std::make_shared<ImageFolder>(std::make_shared<Index>(MakeIndex(options)), options,
                                         /*augments=*/true);
  } catch (const fs::filesystem_error& error) {
    const std::string path = error.path1().empty() ? options.folder : error.path1().string();
    throw DataError("{}: cannot be listed: {}", path, error.code().message());
  }
}

}  // namespace lockstep
