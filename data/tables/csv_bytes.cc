#include "data/tables/csv_bytes.h"

#include <fmt/format.h>
#include <minizip/unzip.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/files/hidden_name.h"
#include "base/files/unpack.h"
#include "base/small_letters.h"

namespace lockstep {
namespace {

constexpr std::string_view kZip = "PK\x03\x04";
constexpr std::string_view kEmptyZip = "PK\x05\x06";

[[noreturn]] void FailEmpty(const std::string& path) {
  throw DataError("{}: the zip archive holds no file", path);
}

constexpr char kDamaged[] = "is damaged";

class Archive {
 public:
  explicit Archive(const std::string& path)
      : path_(path), file_(unzOpen64(path.c_str()), unzClose) {
    // The list of the members is at the end of an archive, so a file that is cut short has no list and cannot be
    // opened.
    if (!file_) FailPacked(path, "is cut short");
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
      FailPacked(path_, kDamaged);
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
    if (unzOpenCurrentFile(file_.get()) != UNZ_OK) FailPacked(path_, kDamaged);
    UnpackedText text(path_, info.compressed_size, most);
    while (true) {
      const int bytes = unzReadCurrentFile(file_.get(), text.Piece(), UnpackedText::kPiece);
      if (bytes < 0) FailPacked(path_, kDamaged);
      if (bytes == 0) break;
      text.Add(bytes);
    }
    // unzCloseCurrentFile() compares the checksum only if the whole member was read, so the length is compared here.
    std::string unpacked = std::move(text).Take();
    if (unzCloseCurrentFile(file_.get()) != UNZ_OK || unpacked.size() != info.uncompressed_size) {
      FailPacked(path_, kDamaged);
    }
    return unpacked;
  }

 private:
  std::string NameHere() const {
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(file_.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK) {
      FailPacked(path_, kDamaged);
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

size_t PackedBytes(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes(file.data(), static_cast<size_t>(file.bytes()));
  return IsGzip(bytes) || bytes.starts_with(kZip) ? bytes.size() : 0;
}

bool IsPlainTableName(std::string_view name) {
  const std::string small = InSmallLetters(name);
  return small.ends_with(".csv") || small.ends_with(".tsv");
}

bool HoldsTable(const std::string& path) {
  try {
    const MappedFile file(path);
    const std::string_view bytes(file.data(), static_cast<size_t>(file.bytes()));
    if (IsGzip(bytes)) return BeginsWithText(path);
    if (!bytes.starts_with(kZip)) return false;
    const std::vector<std::string> names = Archive(path).Names();
    return names.size() == 1 && IsPlainTableName(names[0]);
  } catch (const Error&) {
    return false;
  }
}

CsvBytes::CsvBytes(const std::string& path)
    : CsvBytes(path, MostUnpackedBytes(PackedBytes(path))) {}

CsvBytes::CsvBytes(const std::string& path, size_t most_bytes) : file_(path) {
  const std::string_view bytes = text();
  if (IsGzip(bytes)) {
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
