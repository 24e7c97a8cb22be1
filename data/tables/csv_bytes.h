// CsvBytes: the text of a CSV file, which may be compressed.
//
// Promise: text() is the text of the file, or what gunzip or unzip would make of it. What the file's first bytes say
// counts, not its name. A gzip file may have several members, one behind the other. A zip archive holds one file,
// besides folders and what macOS adds below __MACOSX. Checksums and lengths are compared before the text is returned.
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
//   the text is longer than most_bytes -> likewise -> CsvBytes.RefusesATextBeyondTheLimit
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

 private:
  MappedFile file_;
  bool is_packed_ = false;
  std::string unpacked_;
};

}  // namespace lockstep
