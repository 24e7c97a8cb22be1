// Opens plain files, and refuses anything else that lies in their place.
//
// Promise: opening never waits (opening a pipe could wait), and only a plain file is opened. Inside a run's folder no
// name below the folder may be a link, so that nothing outside the folder is read or written.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/open_file_test.cc)
//   there is no such file, or no permission -> no descriptor, and the system's reason -> OpenFile.SaysWhyThereIsNone
//   a folder, pipe, socket or device -> no descriptor, and its kind as the reason -> OpenFile.OpensPlainFilesOnly
//   a link among the path's own names -> likewise -> OpenFile.FollowsNoLinkBelowItsFolder
//   a pipe that nobody writes to, a file without end -> no text, and the reason -> OpenFile.ReadsWhatAUserGives
#pragma once

#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

// How many of the last names in a path belong to a run's own files: 1 in RUN/log.jsonl, and 3 in a checkpoint's file
// (RUN/checkpoints/STEP/FILE). These names must not be links. A path that a user gave has no such names and may contain
// links.
inline constexpr int kGivenByUser = 0;
inline constexpr int kInRunFolder = 1;
inline constexpr int kInFlightFolder = 2;
inline constexpr int kInCheckpoint = 3;

// Opens a file that must be a plain file. `flags` are those of open(2). If it cannot be opened, sets `why` to the
// reason, and the returned descriptor is empty.
FileDescriptor OpenPlainFile(const std::string& path, int own_names, int flags, std::string& why);

// Returns the kind of a file that has the st_mode `mode`, for example "a folder" or "a pipe".
const char* KindName(unsigned mode);

// Returns the reason why a file that has the st_mode `mode` is not a plain file, such as "it is a folder where a plain
// file is expected". Returns an empty text if it is a plain file.
std::string WhyNoPlainFile(unsigned mode);

// Reads all of a file that a user named and that is read only once. It may be a pipe, such as `<(...)`. It must have at
// most `most_bytes`, and its content must come within five seconds. If it cannot be read, sets `why` to the reason.
std::string ReadGivenFile(const std::string& path, size_t most_bytes, std::string& why);

// Reads all of a plain file, which must have at most `most_bytes`. If it cannot be read, sets `why` to the reason.
std::string ReadPlainFile(const std::string& path, int own_names, size_t most_bytes,
                          std::string& why);

}  // namespace lockstep
