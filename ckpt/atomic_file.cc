#include "ckpt/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void Fail(const char* call, const std::string& path) {
  throw CheckpointError("{}: {} failed: {}", path, call, std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : path_(path), descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) Fail("open", path_);
  }
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void Write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Fail("write", path_);
      bytes = bytes.subspan(written);
    }
  }

  void Sync() const {
    if (fsync(descriptor_) != 0) Fail("fsync", path_);
  }

 private:
  const std::string& path_;
  int descriptor_;
};

// Removes the file unless it was renamed away.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path) {}
  ~Temporary() { unlink(path_.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

 private:
  const std::string& path_;
};

}  // namespace

void WriteFileAtomically(const std::string& path,
                         const std::function<void(const AppendBytes&)>& write) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  const Temporary remove_on_failure(temporary);
  write([&](std::span<const std::byte> bytes) { file.Write(bytes); });
  file.Sync();
  if (rename(temporary.c_str(), path.c_str()) != 0) Fail("rename", path);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  Descriptor(folder, O_RDONLY | O_DIRECTORY).Sync();
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  WriteFileAtomically(path,
                      [&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
}

}  // namespace lockstep
