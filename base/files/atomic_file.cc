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

// A file that is appended to. Whole pieces go past the page cache, each on its way while the next is being
// filled; the rest goes through it.
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
  size_t filling_ = 0;  // of pieces_
  size_t filled_ = 0;   // bytes of it
  int64_t written_ = 0;
  std::future<void> under_way_;  // last, so that it ends before what it works on
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
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  const Temporary remove_on_failure(temporary);
  // Nobody but a process of this number before it has made a file of that name.
  WriteDurably(temporary, kInRunFolder, write);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  // It is opened before the name appears: whoever waits for the file may rename the folder at once.
  SyncedFolder folder(parent.empty() ? "." : parent, kSaving);
  RenameFile(temporary, path, kSaving);
  folder.Sync();
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  WriteFileAtomically(path,
                      [&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
}

}  // namespace lockstep
