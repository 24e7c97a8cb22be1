// Opens plain files, and refuses anything else that lies in their place.
//
// Promise: opening never waits (opening a pipe could wait), and only a plain file is opened. Inside a run's folder no
// name below the folder may be a link, so that nothing outside the folder is read or written.
//
// what can fail -> what the caller sees -> the test that shows it (base/files/open_file_test.cc)
//   there is no such file, or no permission -> no descriptor, and the system's reason -> OpenFile.SaysWhyThereIsNone
//   a folder, pipe, socket or device -> likewise, in words -> OpenFile.OpensPlainFilesOnly
//   a link among its own names -> likewise -> OpenFile.FollowsNoLinkBelowItsFolder
//   a pipe that nobody writes to, a file without end -> no text, and the reason -> OpenFile.ReadsWhatAUserGives
#pragma once

#include <string>

#include "base/files/file_descriptor.h"

namespace lockstep {

// How many of a path's last names belong to the run that the file is of: RUN/log.jsonl has one, a file of a checkpoint
// (RUN/checkpoints/STEP/FILE) three. A path that a user gave has none, and may lead through links.
inline constexpr int kGivenByUser = 0;
inline constexpr int kInRunFolder = 1;
inline constexpr int kInFlightFolder = 2;
inline constexpr int kInCheckpoint = 3;

// `flags`: of open(2). `why`: where there is no descriptor (a negative one), the reason.
FileDescriptor OpenPlainFile(const std::string& path, int own_names, int flags, std::string& why);

// What a file of that mode is: "a folder", "a pipe".
const char* KindName(unsigned mode);

// Why a file of that mode is no plain file: "it is a folder where a plain file is expected"; empty: it is one.
std::string WhyNoPlainFile(unsigned mode);

// All of what a user names to be read once, which may be a pipe, as of `<(...)`: of at most `most_bytes`, that come
// within five seconds. `why`: not empty where it cannot be had.
std::string ReadGivenFile(const std::string& path, size_t most_bytes, std::string& why);

// All of a plain file, of at most `most_bytes`. `why`: not empty where it cannot be had.
std::string ReadPlainFile(const std::string& path, int own_names, size_t most_bytes,
                          std::string& why);

}  // namespace lockstep
