#include "data/images/index_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/cache_folder.h"
#include "base/files/new_file.h"
#include "base/files/xxh3.h"
#include "base/host_name.h"
#include "base/in_threads.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCoarseClock_ns = 2'000'000'000;
constexpr WriteErrors kErrors{.status = ExitStatus::kData, .when_full = ""};

int64_t Now_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool IsSettled(const ImageIndex& index, int64_t listed_ns) {
  return std::ranges::all_of(index.stamps(), [&](const Stamp& stamp) {
    return stamp.changed_ns < listed_ns - kCoarseClock_ns;
  });
}

std::optional<ImageIndex> Read(const fs::path& path, const std::string& key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  try {
    return ImageIndex::FromFile(MappedFile(path.string()), key);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Writes `index` to the file `path`, and returns the index that is mapped from this file. If the file cannot be written
// or mapped, returns `index` itself.
ImageIndex Kept(ImageIndex index, const fs::path& path, const std::string& key) {
  try {
    NewFile file(path.string(), kErrors);
    index.Write(key, [&](std::span<const std::byte> bytes) { file.Write(bytes); });
    std::optional<ImageIndex> written = Read(file.temporary_path(), key);
    if (!written) return index;
    file.Finish();
    return *std::move(written);
  } catch (const Error&) {
    return index;
  }
}

}  // namespace

ImageIndex CachedIndex(const std::string& key,
                       const std::function<bool(const ImageIndex&)>& is_current,
                       const std::function<ImageColumns()>& build) {
  const fs::path folder = OwnCacheFolder(CacheFolder(), "index");
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
