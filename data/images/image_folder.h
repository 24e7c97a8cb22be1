// Lists and reads image files that lie in one folder for each class.
//
// Promise: sample i is the i-th file in the order of classes and names. The label of a class is the index of its
// folder's name in the sorted list of the folders' names, or in options.classes if that is given.
//
// Invariants:
//   1. When a data set is opened for the first time, only the names of files and folders are read. When it is opened
//      again and its index is cached, only the stamps of the folders (size, time of change and inode) are read. They
//      show whether entries were added or removed (data/images/index_cache.h).
//   2. A class may be a link to a folder. Links to folders inside a class are not followed, because they could form a
//      cycle.
//   3. Hidden files and folders (base/files/hidden_name.h) are left out. A remark says how many folders and images.
//   4. Several threads list the folders. They begin with the folders of a level when they have listed all folders of
//      the level above.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/image_folder_test.cc)
//   no folder, no images in it, images beside the classes' folders, a folder that is no known class
//     -> Error (kData) naming it -> ImageFolderTest.RefusesWhatHoldsNoImages,
//     ImageFolderTest.ImagesBesideTheClassesHaveNoLabel, ImageFolderTest.TakesTheClassesOfTraining
//   a file that was removed after the listing, or that is no regular file -> Error (kData) from Load() with its path
//     -> ImageFolderTest.NamesTheFileThatCannotBeRead, ImageFolderTest.APipeIsNoImage
#pragma once

#include <memory>
#include <string>

#include "data/images/image_index.h"
#include "data/images/image_source.h"

namespace lockstep {

// Returns the list of the images below `folder`, from the cache if possible: those in its subfolders, and those that
// lie directly in it, which have no class. Throws Error (kData) if a folder cannot be listed.
ImageIndex ListImageFolder(const std::string& folder);

// Returns a source of the images in `folder`, which has one folder for each class. Throws Error (kData).
std::shared_ptr<const ImageSource> OpenImageFolder(const std::string& folder,
                                                   const ImageSourceOptions& options);

}  // namespace lockstep
