#include "ckpt/atomic_file.h"

#include <unistd.h>

#include <filesystem>

namespace lockstep {
namespace {

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

void WriteDurably(const std::string& path, const std::function<void(const AppendBytes&)>& write) {
  OutputFile file(path, kSaving);
  file.Truncate(0);
  int64_t written = 0;
  write([&](std::span<const std::byte> bytes) {
    file.Write(bytes, written);
    written += static_cast<int64_t>(bytes.size());
  });
  file.Sync();
  file.Close();
}

void WriteFileAtomically(const std::string& path,
                         const std::function<void(const AppendBytes&)>& write) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  const Temporary remove_on_failure(temporary);
  WriteDurably(temporary, write);
  RenameFile(temporary, path, kSaving);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  SyncFolder(parent.empty() ? "." : parent, kSaving);
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  WriteFileAtomically(path,
                      [&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
}

}  // namespace lockstep
