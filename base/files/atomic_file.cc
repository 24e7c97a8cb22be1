#include "base/files/atomic_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

// Returns the name of the temporary file for `path`, without the process ID at the end of the name.
std::string TemporaryPrefix(const std::string& path) { return path + ".tmp."; }

// A temporary file, which the destructor removes. If the file was renamed before, no file has the temporary name, and
// the destructor changes nothing.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path) {}
  ~Temporary() { unlink(path_.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

 private:
  const std::string& path_;
};

// Appends bytes to a file. Full pieces are written without the page cache (O_DIRECT), each by another thread while the
// next piece is being filled. The last, partial piece is written through the page cache.
class Appender {
 public:
  Appender(const std::string& path, int own_names) : file_(path, kSaving, own_names) {
    file_.Truncate(0);
  }

  void Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (!pieces_[filling_]) pieces_[filling_] = NewPiece();
      const size_t taken = std::min(bytes.size(), kPieceBytes - filled_);
      std::memcpy(pieces_[filling_].get() + filled_, bytes.data(), taken);
      filled_ += taken;
      bytes = bytes.subspan(taken);
      if (filled_ == kPieceBytes) WritePiece();
    }
  }

  void Finish() {
    WaitForPiece();
    file_.SetDirect(false);
    if (filled_ > 0) file_.Write({pieces_[filling_].get(), filled_}, written_);
    file_.Sync();
    file_.Close();
  }

 private:
  static constexpr size_t kPieceBytes = size_t{16} << 20;

  struct Free {
    void operator()(std::byte* piece) const { std::free(piece); }
  };
  using Piece = std::unique_ptr<std::byte[], Free>;

  static Piece NewPiece() {
    Piece piece(
        static_cast<std::byte*>(std::aligned_alloc(OutputFile::kDirectAlignment, kPieceBytes)));
    if (!piece) throw std::bad_alloc();
    return piece;
  }

  void WritePiece() {
    WaitForPiece();
    file_.SetDirect(true);
    const std::span<const std::byte> bytes(pieces_[filling_].get(), kPieceBytes);
    under_way_ = std::async(std::launch::async,
                            [this, bytes, offset = written_] { file_.Write(bytes, offset); });
    written_ += static_cast<int64_t>(kPieceBytes);
    filling_ = 1 - filling_;
    filled_ = 0;
  }

  void WaitForPiece() {
    if (under_way_.valid()) under_way_.get();
  }

  OutputFile file_;
  std::array<Piece, 2> pieces_;
  size_t filling_ = 0;  // the index in pieces_ of the piece that is being filled
  size_t filled_ = 0;   // how many bytes of that piece are filled
  int64_t written_ = 0;
  std::future<void> under_way_;  // the last member: it is destroyed first, and waits for the write
};

}  // namespace

void WriteDurably(const std::string& path, int own_names,
                  const std::function<void(const AppendBytes&)>& write) {
  Appender file(path, own_names);
  write([&](std::span<const std::byte> bytes) { file.Append(bytes); });
  file.Finish();
}

void WriteFileAtomically(const std::string& path,
                         const std::function<void(const AppendBytes&)>& write) {
  const std::string temporary = TemporaryPrefix(path) + std::to_string(getpid());
  const Temporary remove_on_failure(temporary);
  // A file with this name can only be left from an earlier process with the same process ID, so it may be overwritten.
  WriteDurably(temporary, kInRunFolder, write);
  // The folder is opened before the file gets its name, because a process that waits for the file may rename the folder
  // as soon as the file has its name.
  SyncedFolder folder(ParentFolder(path), kSaving);
  RenameFile(temporary, path, kSaving);
  folder.Sync();
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  WriteFileAtomically(path,
                      [&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
}

void RemoveTornWrites(const std::string& path) {
  const std::string prefix = std::filesystem::path(TemporaryPrefix(path)).filename().string();
  const auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
  std::error_code error;
  std::vector<std::filesystem::path> torn;
  for (std::filesystem::directory_iterator entry(ParentFolder(path), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    if (std::ranges::all_of(name.substr(prefix.size()), is_digit)) torn.push_back(entry->path());
  }
  for (const std::filesystem::path& file : torn) unlink(file.c_str());
}

}  // namespace lockstep
