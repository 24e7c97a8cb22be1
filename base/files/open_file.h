// Opens plain files, and refuses anything else that lies in their place. Only ReadGivenFile() also reads pipes and
// devices.
//
// Promise: opening never waits (opening a pipe could wait), and OpenPlainFile() and ReadPlainFile() open only a plain
// file. Inside a run's folder no name below the folder may be a link, so that nothing outside the folder is read or
// written.
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

// The number of names at the end of a path that belong to a run's own files: 1 in RUN/log.jsonl, 2 in
// RUN/flight/rank-0, and 3 in RUN/checkpoints/STEP/FILE. These names must not be links. A path that a user gave has no
// such names and may contain links.
inline constexpr int kGivenByUser = 0;
inline constexpr int kInRunFolder = 1;
inline constexpr int kInFlightFolder = 2;
inline constexpr int kInCheckpoint = 3;

// Opens a file that must be a plain file, with the `flags` of open(2), and returns its descriptor. If the file cannot
// be opened, returns an empty descriptor and sets `why` to the reason; otherwise sets `why` to an empty text.
FileDescriptor OpenPlainFile(const std::string& path, int own_names, int flags, std::string& why);

// Returns the kind of a file that has the st_mode `mode`, for example "a folder" or "a pipe".
const char* KindName(unsigned mode);

// Returns the reason why a file that has the st_mode `mode` is not a plain file, such as "it is a folder where a plain
// file is expected", or an empty text if the file is a plain file.
std::string WhyNoPlainFile(unsigned mode);

// Returns the content of a file that a user named and that is read only once. The file may be a pipe, such as `<(...)`.
// It may have at most `most_bytes`. A pipe from which no byte comes for five seconds counts as a file that cannot be
// read. If the file cannot be read, returns an empty text and sets `why` to the reason.
std::string ReadGivenFile(const std::string& path, size_t most_bytes, std::string& why);

// Returns the content of a plain file, which may have at most `most_bytes`. If the file cannot be read, returns an
// empty text and sets `why` to the reason.
std::string ReadPlainFile(const std::string& path, int own_names, size_t most_bytes,
                          std::string& why);

}  // namespace lockstep
