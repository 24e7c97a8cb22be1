// KeptFiles: the files that the outputs of a command must not replace: its inputs, and what runs keep in their folders.
//
// Promise: WhyNot() knows a file by its device and inode, so links of both kinds, `..` in a path and letters in another
// case lead to the same answer. It looks at the file system at the time of the call, except for other names (4), for
// which it goes through the folders that were added once, when it first meets an output that has several names.
//
// A file must not be written if one of these is true:
//   1. it is one of the files that were added
//   2. it lies in a folder that was added, at any depth, and its name is one that the command would read there
//   3. it has a name that a run keeps for itself (base/files/run_files.h) in a run folder, or lies in a folder of such a
//      name there, whichever run that is
//   4. it is another name (a hard link) of a file that 2 or 3 names in a folder that was added
//
// what can fail -> what the caller sees -> the test that shows it
//   a path cannot be looked at -> WhyNot() returns "", and the caller's attempt to write it says why
//   each of the four -> the reason -> base/files/kept_files_test.cc
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class KeptFiles {
 public:
  // Says whether the command reads a file of this name in a folder.
  using IsInput = std::function<bool(std::string_view name)>;

  // Adds the file or folder `path`. `what` says what it is, such as "the input". Does nothing if there is no such file,
  // or if it is neither a plain file nor a folder.
  void Add(const std::string& path, const std::string& what);
  void Add(const std::string& path, const std::string& what, IsInput is_input);

  // Adds the run folder `path`.
  void AddRun(const std::string& path);

  // Returns why the file `path` must not be written, or an empty text if it may be. If `path` is a symbolic link, this
  // is about the link and not about what it leads to.
  std::string WhyNot(const std::string& path) const;

  // Returns why the file `status` must not be written, or an empty text. Its path is not known, so this tells only 1
  // and 4.
  std::string WhyNot(const struct stat& status) const;

  // Throws Error (kUsage) if the file must not be written. `given` is its path as the user gave it.
  void Require(const std::string& path, const std::string& given) const;
  void Require(const struct stat& file, const std::string& given) const;

 private:
  struct Kept {
    std::string path;
    std::string what;
    dev_t device = 0;
    ino_t inode = 0;
    bool is_folder = false;
    bool is_run = false;
    IsInput is_input;

    bool Is(const struct stat& status) const {
      return status.st_dev == device && status.st_ino == inode;
    }
  };

  void Add(Kept kept);
  // Returns the reasons not to write the files of rule 4, by device and inode.
  const std::map<std::pair<dev_t, ino_t>, std::string>& OtherNames() const;

  std::vector<Kept> kept_;
  // The value of OtherNames(), once it was asked for.
  mutable std::optional<std::map<std::pair<dev_t, ino_t>, std::string>> other_names_;
};

}  // namespace lockstep
