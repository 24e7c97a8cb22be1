// Lists and reads the image files of the folder that `lockstep prepare images` or `prepare shards` reads.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/images_test.cc)
//   no folder, no images in it, a folder that cannot be listed, a file that is none
//     -> Error (kData) naming it -> Images.RefusesSources
//   a file that is gone, or has changed since it was listed -> Error (kData)
//     -> Shards.NoticesAChangedSource
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/files/readable_file.h"

namespace lockstep {

struct ImageFile {
  std::string name;  // its path below the folder
  Stamp stamp;
};

// All .jpg, .jpeg and .png files at any depth, in the order of their names, and a warning of what else lies
// there. As in training a folder in `folder` may be a link; links to folders inside it are not followed.
// Throws Error (kData).
std::vector<ImageFile> ListImages(const std::string& folder);

// A line for OutputFolder's job: other names, sizes or times give another one.
std::string SourceLine(const std::string& folder, const std::vector<ImageFile>& files);

// The file's bytes, in `buffer`. Throws Error (kData).
std::span<const std::byte> ReadImageFile(const std::string& folder, const ImageFile& file,
                                         std::vector<std::byte>& buffer);

// Throws Error (kUsage) where one of the two folders lies in the other, and Error (kData) where that
// cannot be found out.
void RequireApart(const std::string& source, const std::string& destination);

// The path without slashes at its end. Throws Error (kUsage) where it names nothing.
std::string FolderName(const std::string& path);

}  // namespace lockstep
