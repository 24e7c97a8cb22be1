// SaidFile: a file to which the output of a child process is appended. LastError() returns the last error message in
// that output, and TakeWarnings() the warnings while the process goes on.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/said_file_test.cc)
//   the file cannot be written, or is a symbolic link -> Error (kUsage) with the reason -> SaidFile.Refuses*
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files/file_descriptor.h"

namespace lockstep {

class SaidFile {
 public:
  // Opens the file `path` for appending, and makes the file if it is missing. Throws Error (kUsage).
  explicit SaidFile(std::string path);

  int descriptor() const { return file_.get(); }

  // Returns the last error message that was printed since this object opened the file, without the prefix "lockstep:
  // error: ". If there is no error message, returns the last line that is not empty, or an empty string if there is no
  // such line.
  std::string LastError() const;

  // Returns the warnings in the lines that were completed since the last call, without "lockstep: warning: ".
  std::vector<std::string> TakeWarnings();

 private:
  std::string path_;
  FileDescriptor file_;
  int64_t begin_;  // the size of the file when it was opened, in bytes
  int64_t taken_;  // the bytes of the file whose warnings were taken
};

}  // namespace lockstep
