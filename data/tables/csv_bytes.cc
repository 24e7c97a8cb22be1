#include "data/tables/csv_bytes.h"

#include <fmt/format.h>
#include <minizip/unzip.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "base/files/hidden_name.h"
#include "base/small_letters.h"

namespace lockstep {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZip = "PK\x03\x04";
constexpr std::string_view kEmptyZip = "PK\x05\x06";
constexpr size_t kPiece = size_t{1} << 20;  // bytes for one call of zlib, which counts in 32 bits

[[noreturn]] void FailDamaged(const std::string& path, std::string_view what) {
  throw DataError("{}: the compressed file {}: copy it or download it again", path, what);
}

[[noreturn]] void FailEmpty(const std::string& path) {
  throw DataError("{}: the zip archive holds no file", path);
}

constexpr char kCutShort[] = "is cut short";
constexpr char kDamaged[] = "is damaged";

// Collects the unpacked text, up to a limit.
class Text {
 public:
  // `expected` is the unpacked length that the file states, which may be wrong. `packed_bytes` is the size of the file,
  // and `most` the limit for the unpacked length.
  Text(const std::string& path, size_t expected, size_t packed_bytes, size_t most)
      : path_(path), most_(most) {
    constexpr size_t kBestRatio = 1032;  // the best compression ratio of deflate
    text_.reserve(std::min({expected, packed_bytes * kBestRatio, most}) + kPiece);
  }

  // Returns memory for the next kPiece bytes. Throws Error (kData) if the text is already longer than the limit.
  char* Piece() {
    if (length_ > most_) {
      throw DataError(
          "{}: unpacked, it has more than the {:.1f} GiB that are left for it "
          "(the compressed files of a set may take half of the memory that this program may use): "
          "unpack it, because a file that is not compressed is read without that memory",
          path_, static_cast<double>(most_) / (size_t{1} << 30));
    }
    text_.resize(length_ + kPiece);
    return text_.data() + length_;
  }

  void Add(size_t bytes) { length_ += bytes; }

  std::string Take() && {
    text_.resize(length_);
    return std::move(text_);
  }

 private:
  const std::string& path_;
  size_t most_;
  size_t length_ = 0;
  std::string text_;
};

// ---- gzip ---------------------------------------------------------------------------------------

// Returns the unpacked length that the last four bytes of a gzip file with one member state, or 0 if these bytes are 0.
// (They are 0 in a file of bgzip, which ends in an empty member.) The bytes state the length modulo 4 GiB, so the
// function adds 4 GiB until the length is at least the size of the file.
size_t LengthInGzip(std::string_view packed) {
  if (packed.size() < sizeof(uint32_t)) return 0;
  uint32_t bytes = 0;  // little-endian, like the machines that Lockstep runs on
  std::memcpy(&bytes, packed.data() + packed.size() - sizeof(bytes), sizeof(bytes));
  if (bytes == 0) return 0;
  size_t length = bytes;
  while (length < packed.size()) length += size_t{1} << 32;
  return length;
}

std::string UnpackGzip(const std::string& path, std::string_view packed, size_t most) {
  Text text(path, LengthInGzip(packed), packed.size(), most);
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
      if (!packed.starts_with(kGzip)) FailDamaged(path, "has something behind its end");
      inflateReset(&stream);
    }
    const size_t given = std::min(packed.size(), kPiece);
    // The cast is safe, because zlib does not write to its input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(text.Piece());
    stream.avail_out = kPiece;
    const int status = inflate(&stream, Z_NO_FLUSH);
    packed.remove_prefix(given - stream.avail_in);
    text.Add(kPiece - stream.avail_out);
    if (status == Z_BUF_ERROR || (status == Z_OK && packed.empty() && stream.avail_out > 0)) {
      FailDamaged(path, kCutShort);
    }
    if (status != Z_OK && status != Z_STREAM_END) FailDamaged(path, kDamaged);
    in_member = status != Z_STREAM_END;
  }
}

// ---- zip ----------------------------------------------------------------------------------------

class Archive {
 public:
  explicit Archive(const std::string& path)
      : path_(path), file_(unzOpen64(path.c_str()), unzClose) {
    // The list of the members is at the end of an archive, so a file that is cut short has no list and cannot be
    // opened.
    if (!file_) FailDamaged(path, kCutShort);
  }

  // Returns the names of the files, without folders and hidden files. Makes the first of these files the archive's
  // current file.
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    unz64_file_pos place{};
    for (int status = unzGoToFirstFile(file_.get()); status == UNZ_OK;
         status = unzGoToNextFile(file_.get())) {
      const std::string name = NameHere();
      if (name.ends_with('/') || HasHiddenName(name)) continue;
      names.push_back(name);
      if (names.size() == 1) unzGetFilePos64(file_.get(), &place);
    }
    if (!names.empty()) unzGoToFilePos64(file_.get(), &place);
    return names;
  }

  // Makes the only file of the archive the current file. Throws Error (kData) if the archive does not hold exactly one
  // file, or is a spreadsheet.
  void FindFile() {
    const std::vector<std::string> names = Names();
    if (std::ranges::find(names, "[Content_Types].xml") != names.end()) {
      throw DataError("{}: the file is a spreadsheet: save the sheet as CSV", path_);
    }
    if (names.empty()) FailEmpty(path_);
    if (names.size() > 1) {
      throw DataError(
          "{}: the zip archive holds {} files, such as {} and {}: "
          "unzip it, and give the file to read",
          path_, names.size(), names[0], names[1]);
    }
  }

  std::string Unpack(size_t most) {
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(file_.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK) {
      FailDamaged(path_, kDamaged);
    }
    constexpr uLong kEncrypted = 1;
    if ((info.flag & kEncrypted) != 0) {
      throw DataError("{}: the zip archive is encrypted: unzip it first", path_);
    }
    if (info.compression_method != 0 && info.compression_method != Z_DEFLATED) {
      throw DataError(
          "{}: the zip archive is compressed by method {}, and deflate is read: unzip it first",
          path_, info.compression_method);
    }
    if (unzOpenCurrentFile(file_.get()) != UNZ_OK) FailDamaged(path_, kDamaged);
    Text text(path_, info.uncompressed_size, info.compressed_size, most);
    while (true) {
      const int bytes = unzReadCurrentFile(file_.get(), text.Piece(), kPiece);
      if (bytes < 0) FailDamaged(path_, kDamaged);
      if (bytes == 0) break;
      text.Add(bytes);
    }
    // unzCloseCurrentFile() compares the checksum only if the whole member was read, so the length is compared here.
    std::string unpacked = std::move(text).Take();
    if (unzCloseCurrentFile(file_.get()) != UNZ_OK || unpacked.size() != info.uncompressed_size) {
      FailDamaged(path_, kDamaged);
    }
    return unpacked;
  }

 private:
  std::string NameHere() const {
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(file_.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK) {
      FailDamaged(path_, kDamaged);
    }
    std::string name(info.size_filename, '\0');
    unzGetCurrentFileInfo64(file_.get(), nullptr, name.data(), name.size(), nullptr, 0, nullptr, 0);
    return name;
  }

  const std::string& path_;
  std::unique_ptr<void, int (*)(unzFile)> file_;
};

// Returns whether the first 4,096 bytes of the unpacked content (or all bytes, if there are fewer) are text, that is,
// have no zero byte. Returns false if there is no content or it cannot be read.
bool BeginsWithText(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::array<char, 4096> beginning{};
  const int bytes = file ? gzread(file.get(), beginning.data(), beginning.size()) : -1;
  return bytes > 0 &&
         std::find(beginning.begin(), beginning.begin() + bytes, '\0') == beginning.begin() + bytes;
}

}  // namespace

size_t MostUnpackedBytes() {
  const double of_machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return static_cast<size_t>(std::min(of_machine, BytesOfMemory()) / 2);
}

bool IsPlainTableName(std::string_view name) {
  const std::string small = InSmallLetters(name);
  return small.ends_with(".csv") || small.ends_with(".tsv");
}

bool HoldsTable(const std::string& path) {
  try {
    const MappedFile file(path);
    const std::string_view bytes(file.data(), static_cast<size_t>(file.bytes()));
    if (bytes.starts_with(kGzip)) return BeginsWithText(path);
    if (!bytes.starts_with(kZip)) return false;
    const std::vector<std::string> names = Archive(path).Names();
    return names.size() == 1 && IsPlainTableName(names[0]);
  } catch (const Error&) {
    return false;
  }
}

CsvBytes::CsvBytes(const std::string& path) : CsvBytes(path, MostUnpackedBytes()) {}

CsvBytes::CsvBytes(const std::string& path, size_t most_bytes) : file_(path) {
  const std::string_view bytes = text();
  if (bytes.starts_with(kGzip)) {
    unpacked_ = UnpackGzip(path, bytes, most_bytes);
    is_packed_ = true;
  } else if (bytes.starts_with(kEmptyZip)) {
    FailEmpty(path);
  } else if (bytes.starts_with(kZip)) {
    Archive archive(path);
    archive.FindFile();
    unpacked_ = archive.Unpack(most_bytes);
    is_packed_ = true;
  } else if (const std::string name = InSmallLetters(path);
             name.ends_with(".gz") || name.ends_with(".zip")) {
    throw DataError(
        "{}: the file is not compressed, although its name says so: "
        "download it again, or, if it is a table, take the ending from its name",
        path);
  }
}

std::string_view CsvBytes::text() const {
  if (is_packed_) return unpacked_;
  return {file_.data(), static_cast<size_t>(file_.bytes())};
}

}  // namespace lockstep
