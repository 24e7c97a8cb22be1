// Reads image folders: image files in one folder for each class.
//
// Promise: sample i is the i-th file in the order of classes and names. A class's label is the place of its folder in
// the sorted list of the folders' names, or in options.classes.
//
// Invariants:
//   1. When the folder is opened, only names are read. From the second time on, only the folders' times of change are
//      read. They show whether entries were added or removed (data/images/index_cache.h).
//   2. A class may be a link to a folder. Links to folders inside a class are not followed, because they could lead in
//      circles.
//   3. Files and folders whose names begin with a dot are ignored.
//   4. The threads list all folders of one level together before they begin with the level below.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/image_folder_test.cc)
//   no folder, no images in it, images beside the classes' folders, a folder that is no known class
//     -> Error (kData) naming it -> ImageFolderTest.Refuses*
//   a file that was removed since, or that is no regular file -> Error (kData) from Load() with its path
//     -> ImageFolderTest.NamesTheFileThatCannotBeRead
#pragma once

#include <memory>
#include <string>

#include "data/images/image_source.h"

namespace lockstep {

// Opens a folder that has one folder for each class. Throws Error (kData).
std::shared_ptr<const ImageSource> OpenImageFolder(const std::string& folder,
                                                   const ImageSourceOptions& options);

}  // namespace lockstep
