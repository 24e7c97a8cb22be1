// IsHiddenName() and HasHiddenName(): the one rule about which files and folders are no part of a user's data, in a
// folder as in an archive.
//
// Promise: hidden is a name that begins with a dot, such as .ipynb_checkpoints, .git, .DS_Store and macOS's ._1.jpg,
// and the name of a folder that a system makes beside a user's files: __MACOSX (macOS's archives), @eaDir (thumbnails
// of a Synology server), $RECYCLE.BIN and System Volume Information (Windows), and lost+found (a Linux file system).
// All that lies below a hidden folder is hidden, too.
//
// Whoever reads a data set leaves hidden files out: folders of images, of masks and of shards, the members of tar and
// zip archives, `lockstep new` and `lockstep prepare`. A path that the user gives is read, whatever its name is.
#pragma once

#include <string_view>

namespace lockstep {

// Returns whether an entry of a folder with the name `name` is hidden.
bool IsHiddenName(std::string_view name);

// Returns whether an archive's member with the path `path` is hidden: whether the file's name or that of a folder in
// the path is. The parts "." and ".." of a path are no names.
bool HasHiddenName(std::string_view path);

}  // namespace lockstep
