// CachedIndex(): caches an index of images in a file, so that the next run need not list the images again.
//
// Promise: CachedIndex() returns the same index that `build` would return. The cache never makes a run fail: if the
// cache folder cannot be made, read or written, CachedIndex() returns the index that `build` makes.
//
// Protocol:
//   1. `key` names what is listed. The index of a key is the file DIR/HASH. DIR is $XDG_CACHE_HOME/lockstep/index, or
//      $HOME/.cache/lockstep/index if XDG_CACHE_HOME is not set. HASH is the XXH3 of this machine's name and the key.
//      HASH includes the machine's name because machines that share a home folder may have different data. The file
//      also holds the machine's name and the key, and CachedIndex() does not use a file with another machine's name or
//      another key.
//   2. The file is mapped, and its checksums are verified. A stamp is the size, the time of change and the inode of a
//      file or folder that was listed. `is_current` compares each stored stamp with the present stamp. If the checksums
//      and all stamps are right, CachedIndex() returns the index from the file. Otherwise it goes on with step 3.
//   3. `build` lists all images. It takes the stamp of each file or folder before it reads that file or folder.
//   4. An index is not written to the cache if one of its stamps has a time of change later than two seconds before
//      step 3 began. Clocks of file systems are coarse: a second change in the same tick of the clock may leave the
//      stamp as it is, and would then not be noticed.
//   5. The index is written to DIR/HASH.??????, which is renamed to DIR/HASH. A reader therefore finds a whole file or
//      no file. If several processes write the index, the file of the last one remains. The file is not synced to the
//      disk: if a crash damages the file, its checksums show this, and the next run lists the images again.
//   6. CachedIndex() returns the index from the file that it wrote, mapped into memory, and frees the copy that `build`
//      made.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_index_test.cc)
//   no home, a folder that cannot be written, a full disk -> an index without cache
//     -> IndexCache.GoesWithoutAFolder
//   a folder in which somebody else may have put an index -> likewise -> IndexCache.GoesWithoutAFolderOfAnother
//   a cache file that is cut short or damaged, or that is no index -> the images are listed again, and a new file is
//     written -> IndexCache.RebuildsWhatIsDamaged
//   someone cuts the file short in place while it is mapped -> SIGBUS (base/files/mapped_file.h) -> (none)
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/images/image_index.h"

namespace lockstep {

// Returns the index for `key`, from the cache or from `build`. `key` names the listed files or folders by their
// absolute paths.
ImageIndex CachedIndex(const std::string& key,
                       const std::function<bool(const ImageIndex&)>& is_current,
                       const std::function<ImageColumns()>& build);

// Returns whether each of the index's sources still has the stamp that the index holds. path_of(i) must return the path
// of source i.
bool StampsHold(const ImageIndex& index, const std::function<std::string(int64_t)>& path_of);

}  // namespace lockstep
