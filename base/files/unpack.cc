#include "base/files/unpack.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/cores.h"
#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";

std::string SizeText(size_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double size = static_cast<double>(bytes) / kMiB;
  return size < 1024 ? fmt::format("{:.0f} MiB", size) : fmt::format("{:.1f} GiB", size / 1024);
}

}  // namespace

size_t MostUnpackedBytes(size_t packed_bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  constexpr size_t kAlways = 256 * kMiB, kMostOfSmall = 1280 * kMiB;
  constexpr size_t kRatioOfSmall = 128, kRatio = 20;
  const double of_machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const auto half = static_cast<size_t>(std::min(of_machine, BytesOfMemory()) / 2);
  const auto times = [half](size_t bytes, size_t ratio) {
    return bytes > half / ratio ? half : bytes * ratio;
  };
  const size_t of_small = std::min(times(packed_bytes, kRatioOfSmall), kMostOfSmall);
  return std::min(std::max({kAlways, of_small, times(packed_bytes, kRatio)}), half);
}

bool IsGzip(std::string_view bytes) { return bytes.starts_with(kGzip); }

UnpackedText::UnpackedText(const std::string& path, size_t packed_bytes, size_t most)
    : path_(path), most_(most) {
  // Memory that is reserved and not written takes no room. No format that is read here compresses better than this.
  constexpr size_t kBestRatio = 1032;
  text_.reserve(
      std::min(packed_bytes > most / kBestRatio ? most : packed_bytes * kBestRatio, most) + kPiece);
}

char* UnpackedText::Piece() {
  if (length_ > most_) {
    throw DataError(
        "{}: unpacked, it has more than the {} that compressed files of its size may take: unpack "
        "it, because a file that is not compressed is read without that memory",
        path_, SizeText(most_));
  }
  text_.resize(length_ + kPiece);
  return text_.data() + length_;
}

std::string UnpackedText::Take() && {
  text_.resize(length_);
  return std::move(text_);
}

std::string UnpackGzip(const std::string& path, std::string_view packed, size_t most) {
  UnpackedText text(path, packed.size(), most);
  z_stream stream{};
  constexpr int kFormatOfGzip = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kFormatOfGzip) != Z_OK) throw BugError("inflateInit2");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, inflateEnd);
  bool in_member = true;
  while (true) {
    if (!in_member) {
      // Zeros after a member are padding that some archivers write.
      packed.remove_prefix(std::min(packed.find_first_not_of('\0'), packed.size()));
      if (packed.empty()) return std::move(text).Take();
      if (!IsGzip(packed)) FailPacked(path, "has something behind its end");
      inflateReset(&stream);
    }
    const size_t given = std::min(packed.size(), UnpackedText::kPiece);
    // The cast is safe, because zlib does not write to its input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(text.Piece());
    stream.avail_out = UnpackedText::kPiece;
    const int status = inflate(&stream, Z_NO_FLUSH);
    packed.remove_prefix(given - stream.avail_in);
    text.Add(UnpackedText::kPiece - stream.avail_out);
    if (status == Z_BUF_ERROR || (status == Z_OK && packed.empty() && stream.avail_out > 0)) {
      FailPacked(path, "is cut short");
    }
    if (status != Z_OK && status != Z_STREAM_END) FailPacked(path, "is damaged");
    in_member = status != Z_STREAM_END;
  }
}

void FailPacked(const std::string& path, std::string_view what) {
  throw DataError("{}: the compressed file {}: copy it or download it again", path, what);
}

}  // namespace lockstep
