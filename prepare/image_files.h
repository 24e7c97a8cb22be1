// Lists and reads the image files of the folder that `lockstep prepare images` or `prepare shards` reads.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/images_test.cc)
//   there is no folder or no image in it, a folder cannot be listed, something is not a regular file
//     -> Error (kData) naming it -> Images.RefusesSources
//   a file was removed or has changed since it was listed -> Error (kData)
//     -> Shards.NoticesAChangedSource
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/files/readable_file.h"

namespace lockstep {

struct ImageFile {
  std::string name;  // the file's path, relative to the folder
  Stamp stamp;
};

// Returns the image files that training would read (data/images/image_folder.h), in the order of their names, and warns
// about what is left out. Throws Error (kData).
std::vector<ImageFile> ListImages(const std::string& folder);

// Returns a line for the job of an OutputFolder. The line changes if names, sizes or modification times of files
// change.
std::string SourceLine(const std::string& folder, const std::vector<ImageFile>& files);

// Reads the file into `buffer` and returns its bytes. Throws Error (kData).
std::span<const std::byte> ReadImageFile(const std::string& folder, const ImageFile& file,
                                         std::vector<std::byte>& buffer);

// Checks that neither of the two folders lies in the other. Throws Error (kUsage) if one does, and Error (kData) if the
// file system does not say where they lie.
void RequireApart(const std::string& source, const std::string& destination);

// Returns the path without the slashes at its end. Throws Error (kUsage) if the path names no folder that can be made,
// such as "/" or "..".
std::string FolderName(const std::string& path);

}  // namespace lockstep
