// OutputTarget: the target to which a command writes its result. The target is a plain file or something else (a pipe,
// a device, /dev/stdout).
//
// The path "-" is standard output, and never a file of that name.
//
// Promise: a plain file is replaced only when the new file is complete (base/files/atomic_file.h). If a link leads to
// the file, the file is replaced and the link stays. A target that is not a plain file, or that the path names as an
// open descriptor of this process (/dev/stdout, /dev/fd/5), is never replaced: the bytes are written to the target as
// soon as `write` appends them. A block device (a disk) is refused, unless the path names it as such a descriptor. An
// input of the command and the state of a run are never written (base/files/kept_files.h).
//
// what can fail -> what the caller sees -> the test that shows it (base/files/output_target_test.cc)
//   no folder, no permission, a folder, a disk, links in a circle -> Error (kCheckpoint), before there is work that
//     could be lost -> OutputTarget.SaysAtOnceWhatCannotBeWritten
//   an input of the command, or a file of a run -> Error (kUsage), likewise -> OutputTarget.KeepsTheCommandsInputs
//   a pipe that nobody reads -> likewise, after five seconds -> OutputTarget.WaitsForAReaderFiveSeconds
//   the pipe's reader closes it, a full disk -> Error (kCheckpoint) -> OutputTarget.SaysThatItsReaderLeft
#pragma once

#include <functional>
#include <string>

#include "base/files/atomic_file.h"
#include "base/files/file_descriptor.h"
#include "base/files/kept_files.h"

namespace lockstep {

inline constexpr char kStandardOutput[] = "-";

// Prints a line about the file `path` that was written: on standard output, or on standard error if `path` itself is
// standard output.
void TellOfOutput(const std::string& path, const std::string& line);

class OutputTarget {
 public:
  // Checks that `path` can be written, and opens it if it is not a plain file. `kept` has the command's inputs. Throws
  // Error: kUsage if `path` is empty or one of the files that `kept` keeps, kCheckpoint if it cannot be written.
  OutputTarget(const std::string& path, const KeptFiles& kept);

  // Writes the content. Write() may be called only once. Calls `write` with a function that appends bytes. Throws Error
  // (kCheckpoint), and any exception of `write`.
  void Write(const std::function<void(const AppendBytes&)>& write);

 private:
  std::string path_;  // the path as the user gave it; /dev/stdout for "-"
  // The path of the plain file that Write() replaces. If it is empty, Write() writes to the descriptor `through_`.
  std::string replaced_;
  FileDescriptor through_;
};

}  // namespace lockstep
