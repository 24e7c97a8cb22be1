// CsvBytes: the text of a CSV file, which may be compressed.
//
// Promise: text() is the text of the file, or what gunzip or unzip would make of it. The file's first bytes decide, not
// its name. A gzip file may have several members, one behind the other. A zip archive holds one file,
// besides folders, hidden files and what macOS adds below __MACOSX. Checksums and lengths are compared before the text
// is returned.
//
// Invariants:
//   1. A file that is not compressed is mapped, and takes no memory of its own. The text of one that is compressed lies
//      in memory for as long as the object exists; each process unpacks for itself.
//   2. Not more than `most_bytes` are unpacked.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_bytes_test.cc)
//   the file is missing or empty -> Error (kData) with path -> Csv.RefusesAMissingFile, Csv.RefusesAnEmptyFile
//   the file is cut short or damaged, or has something behind its end -> the same, with the cure
//     -> CsvBytes.RefusesAFileThatIsCutShort, CsvBytes.RefusesADamagedFile
//   its name ends in .gz or .zip, and it is neither -> likewise -> CsvBytes.RefusesAFileThatIsNotWhatItsNameSays
//   the archive holds no file, several files or a spreadsheet, is encrypted or compressed in another way -> likewise
//     -> CsvBytes.RefusesAnArchive*
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

// Returns whether a compressed file, whose name does not say what is in it, holds a table: a zip archive one file that
// ends in .csv or .tsv, a gzip file a text. False if it cannot be read.
bool HoldsTable(const std::string& path);

// Returns whether a name ends in .csv or .tsv, in small or capital letters.
bool IsPlainTableName(std::string_view name);

}  // namespace lockstep
