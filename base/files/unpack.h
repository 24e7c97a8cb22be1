// Reads compressed input in bounded memory.
//
// Promise: what a compressed file may unpack to follows from its own size, whatever lengths it states. Files of real
// tables and traces unpack to some ten times their size, small ones of few different rows to a hundred times; one that
// is made to fill the memory unpacks to a thousand times.
//
// Invariants:
//   1. An UnpackedText takes the memory of its text plus at most 1 MiB: it never grows by copying.
//   2. Before a text that is too long is refused, at most 1 MiB more than the limit is unpacked.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/unpack_test.cc)
//   the text is longer than the limit -> Error (kData) with path, limit and advice -> Unpack.RefusesWhatIsTooLong
//   the file is cut short or damaged, or has bytes after its end -> Error (kData) with path and advice
//     -> Unpack.RefusesWhatIsDamaged, data/tables/csv_bytes_test.cc
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Returns how many bytes files of `packed_bytes` bytes in all may unpack to: 256 MiB, or 128 times their size up to
// 1.25 GiB, or 20 times their size, whichever is most, but at most half of the memory that the process may use.
size_t MostUnpackedBytes(size_t packed_bytes);

// Returns whether a file that begins with `bytes` is a gzip file.
bool IsGzip(std::string_view bytes);

// Collects unpacked text, up to a limit.
class UnpackedText {
 public:
  static constexpr size_t kPiece = size_t{1}
                                   << 20;  // bytes for one call of zlib, which counts in 32 bits

  // `path` and `packed_bytes` are the file's path and size; `most` is the limit of the text's length.
  UnpackedText(const std::string& path, size_t packed_bytes, size_t most);

  // Returns memory for the next kPiece bytes. Throws Error (kData) if the text is already longer than the limit.
  char* Piece();

  // Adds the first `bytes` bytes of the last Piece() to the text.
  void Add(size_t bytes) { length_ += bytes; }

  std::string Take() &&;

 private:
  const std::string& path_;
  size_t most_;
  size_t length_ = 0;
  std::string text_;
};

// Returns the text of the gzip file `path`, whose bytes are `packed`. A gzip file may have several members, one after the
// other. Throws Error (kData).
std::string UnpackGzip(const std::string& path, std::string_view packed, size_t most);

// Throws Error (kData) that says what is wrong with the compressed file `path`: it `what`, such as "is cut short".
[[noreturn]] void FailPacked(const std::string& path, std::string_view what);

}  // namespace lockstep
