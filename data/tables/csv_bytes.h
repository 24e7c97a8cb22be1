// CsvBytes: the text of a CSV file, which may be compressed.
//
// Promise: text() returns the text of the file. The text of a gzip file or a zip archive is what gunzip or unzip would
// write. The first bytes of the file, not its name, decide whether it is compressed. A gzip file may have several
// members, one after the other. A zip archive must hold exactly one file; folders and hidden files
// (base/files/hidden_name.h) are ignored. Checksums and lengths are compared before the text is returned.
//
// Invariants:
//   1. An uncompressed file is memory-mapped and takes no further memory. The text of a compressed file stays in memory
//      as long as the CsvBytes object exists. Each process unpacks the file for itself.
//   2. A file whose text has more than `most_bytes` bytes is refused (base/files/unpack.h).
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_bytes_test.cc)
//   the file is missing or empty -> Error (kData) with path -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile
//   the file is cut short or damaged, or has bytes after its end -> Error (kData) with path and advice
//     -> CsvBytes.RefusesAFileThatIsCutShort, CsvBytes.RefusesADamagedFile
//   the name ends in .gz or .zip, but the file is neither -> Error (kData) with path and advice
//     -> CsvBytes.RefusesAFileThatIsNotWhatItsNameSays
//   the archive holds no file, several files or a spreadsheet, is encrypted, or is not compressed by deflate
//     -> Error (kData) with path and, except for an archive without a file, advice -> CsvBytes.RefusesAnArchive*
//   the text is longer than most_bytes -> Error (kData) with path and advice -> CsvBytes.RefusesATextBeyondTheLimit,
//     CsvBytes.TheLimitIsThatOfAllFilesOfASet
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/files/mapped_file.h"

namespace lockstep {

class CsvBytes {
 public:
  // Opens the file and, if it is compressed, unpacks it. Without `most_bytes`, the limit is MostUnpackedBytes() of the
  // file's size. Throws Error (kData).
  explicit CsvBytes(const std::string& path);
  CsvBytes(const std::string& path, size_t most_bytes);

  std::string_view text() const;

  // Returns how many bytes the unpacked text has, or 0 if the file is not compressed.
  size_t unpacked_bytes() const { return unpacked_.size(); }

 private:
  MappedFile file_;
  bool is_packed_ = false;
  std::string unpacked_;
};

// Returns the size of the file `path` if it is compressed, otherwise 0. Throws Error (kData).
size_t PackedBytes(const std::string& path);

// Returns whether the file `path` is compressed and holds a table. The content of the file decides this, not its name.
// A zip archive holds a table if its only file has a name that ends in .csv or .tsv, and a gzip file holds a table if
// its content begins with text. Returns false if the file cannot be read.
bool HoldsTable(const std::string& path);

// Returns whether `name` ends in .csv or .tsv, in small or capital letters.
bool IsPlainTableName(std::string_view name);

}  // namespace lockstep
