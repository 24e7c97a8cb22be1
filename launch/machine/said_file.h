// SaidFile: the file that a child process prints to, and what it said last.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/said_file_test.cc)
//   the file cannot be written, or is a link -> Error (kUsage) with the reason -> SaidFile.Refuses*
#pragma once

#include <cstdint>
#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

class SaidFile {
 public:
  // Opens the file, and makes it if it is missing. Output is appended. Throws Error (kUsage).
  explicit SaidFile(std::string path);

  int descriptor() const { return file_.get(); }

  // Returns the last error that was printed since the file was opened, without what each error begins with; if there is
  // none, the last line; empty: there is no line.
  std::string LastError() const;

 private:
  std::string path_;
  FileDescriptor file_;
  int64_t begin_;  // of what is printed from now on
};

}  // namespace lockstep
