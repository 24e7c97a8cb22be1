// CsvBytes: the text of a CSV file, which may be compressed.
//
// Promise: text() returns the text of the file. A gzip file or zip archive is unpacked, as gunzip or unzip would do.
// The first bytes of the file, not its name, decide whether it is compressed. A gzip file may have several members, one
// behind the other. A zip archive must hold exactly one file; folders, hidden files and the files that macOS adds below
// __MACOSX do not count. Checksums and lengths are compared before the text is returned.
//
// Invariants:
//   1. An uncompressed file is memory-mapped and takes no further memory. The text of a compressed file stays in memory
//      as long as the CsvBytes object exists. Each process unpacks the file for itself.
//   2. At most `most_bytes` bytes are unpacked.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_bytes_test.cc)
//   the file is missing or empty -> Error (kData) with path -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile
//   the file is cut short or damaged, or has bytes after its end -> the same, with advice
//     -> CsvBytes.RefusesAFileThatIsCutShort, CsvBytes.RefusesADamagedFile
//   the name ends in .gz or .zip, but the file is neither -> likewise -> CsvBytes.RefusesAFileThatIsNotWhatItsNameSays
//   the archive holds no file, several files or a spreadsheet, is encrypted, or is not compressed by deflate
//     -> likewise -> CsvBytes.RefusesAnArchive*
//   the text is longer than most_bytes -> likewise -> CsvBytes.RefusesATextBeyondTheLimit,
//     CsvBytes.TheLimitIsThatOfAllFilesOfASet
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/files/mapped_file.h"

namespace lockstep {

class CsvBytes {
 public:
  // Throws Error (kData).
  explicit CsvBytes(const std::string& path);
  CsvBytes(const std::string& path, size_t most_bytes);

  std::string_view text() const;

  // How many bytes were unpacked; 0 if the file is not compressed.
  size_t unpacked_bytes() const { return unpacked_.size(); }

 private:
  MappedFile file_;
  bool is_packed_ = false;
  std::string unpacked_;
};

// Returns how many bytes may be unpacked in all: half of the memory that this process may use.
size_t MostUnpackedBytes();

// Returns whether a compressed file, whose name does not say what is in it, holds a table. A zip archive does if it
// holds one file whose name ends in .csv or .tsv, and a gzip file does if it holds text. Returns false if the file
// cannot be read.
bool HoldsTable(const std::string& path);

// Returns whether a name ends in .csv or .tsv, in small or capital letters.
bool IsPlainTableName(std::string_view name);

}  // namespace lockstep
