#include "data/index_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/host_name.h"
#include "base/in_threads.h"
#include "base/xxh3.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCoarseClock_ns = 2'000'000'000;

int64_t Now_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Where indexes lie; empty: nowhere.
fs::path IndexFolder() {
  const fs::path cache = CacheFolder();
  return cache.empty() ? cache : cache / "index";
}

bool IsSettled(const ImageIndex& index, int64_t listed_ns) {
  return std::ranges::all_of(index.stamps(), [&](const Stamp& stamp) {
    return stamp.changed_ns < listed_ns - kCoarseClock_ns;
  });
}

// Writes a file under a temporary name; what was not committed goes with it.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) : path_(path) {
    static std::atomic<int> number{0};
    temporary_ = fmt::format("{}.{}.{}", path.string(), getpid(), number++);
    descriptor_ =
        FileDescriptor(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  }
  ~NewFile() {
    if (descriptor_.get() >= 0 && !committed_) unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& temporary() const { return temporary_; }
  bool good() const { return descriptor_.get() >= 0 && good_; }

  void Write(std::span<const std::byte> bytes) {
    while (good() && !bytes.empty()) {
      const ssize_t written = write(descriptor_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      good_ = written > 0;
      if (good_) bytes = bytes.subspan(written);
    }
  }

  void Commit() { committed_ = rename(temporary_.c_str(), path_.c_str()) == 0; }

 private:
  fs::path path_;
  std::string temporary_;
  FileDescriptor descriptor_;
  bool good_ = true;
  bool committed_ = false;
};

std::optional<ImageIndex> Read(const fs::path& path, const std::string& key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  try {
    return ImageIndex::FromFile(MappedFile(path.string()), key);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// `index`, from the file that it was written to if that can be.
ImageIndex Kept(ImageIndex index, const fs::path& path, const std::string& key) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  NewFile file(path);
  index.Write(key, [&](std::span<const std::byte> bytes) { file.Write(bytes); });
  if (!file.good()) return index;
  std::optional<ImageIndex> written = Read(file.temporary(), key);
  if (!written) return index;
  file.Commit();
  return *std::move(written);
}

}  // namespace

ImageIndex CachedIndex(const std::string& key,
                       const std::function<bool(const ImageIndex&)>& is_current,
                       const std::function<ImageColumns()>& build) {
  const fs::path folder = IndexFolder();
  const std::string whole_key = HostName() + '\0' + key;
  const fs::path path = folder / fmt::format("{:016x}", Xxh3Of(whole_key));
  if (!folder.empty()) {
    std::optional<ImageIndex> cached = Read(path, whole_key);
    if (cached && is_current(*cached)) return *std::move(cached);
  }
  const int64_t listed_ns = Now_ns();
  ImageIndex index(build());
  if (folder.empty() || !IsSettled(index, listed_ns)) return index;
  return Kept(std::move(index), path, whole_key);
}

bool StampsHold(const ImageIndex& index, const std::function<std::string(int64_t)>& path_of) {
  std::atomic<bool> hold{true};
  InThreads(ReadingThreads(), index.sources().size(), [&](int64_t i) {
    if (hold && StampOf(path_of(i)) != index.stamps()[i]) hold = false;
  });
  return hold;
}

}  // namespace lockstep
