// CachedIndex(): keeps an index of images in a file, so that the next run need not list the images again.
//
// Promise: CachedIndex() returns the same index that `build` would return. The cache never makes a run fail: if its
// folder cannot be made, read or written, the run lists the images itself.
//
// Protocol:
//   1. `key` names what is listed. The index of a key is the file DIR/HASH. DIR is $XDG_CACHE_HOME/lockstep/index, or
//      $HOME/.cache/lockstep/index if XDG_CACHE_HOME is not set. HASH is the XXH3 of this machine's name and the key.
//      The machine's name is included because machines that share a home folder need not share the data. The file also
//      holds the machine's name and the key, and a file with another name or key is not used.
//   2. The file is mapped, and its checksums are compared. A stamp is the size, the time of change and the inode of a
//      file or folder that was listed. `is_current` compares each stored stamp with the present stamp. If every check
//      succeeds, CachedIndex() returns the index from the file. Otherwise it goes on with step 3.
//   3. `build` lists all images. It takes the stamp of each file or folder before it reads that file or folder.
//   4. An index is not kept if one of its stamps has a time of change within the last two seconds. Clocks of file
//      systems are coarse: a second change in the same tick would leave such a stamp as it is.
//   5. The index is written to DIR/HASH.??????, which is renamed to DIR/HASH. Readers find a whole file or no file. If
//      several processes write, the last one wins. The file is not synced, because its checksums show damage.
//   6. CachedIndex() returns the index from the file that it wrote, mapped into memory, and frees the copy that `build`
//      made.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_index_test.cc)
//   no home, a folder that cannot be written, a full disk -> an index without cache
//     -> IndexCache.GoesWithoutAFolder
//   a file that is cut short, damaged or of something else -> a new one -> IndexCache.RebuildsWhatIsDamaged
//   someone cuts the file short in place while it is mapped -> SIGBUS (base/files/mapped_file.h) -> (none)
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/images/image_index.h"

namespace lockstep {

// Returns the index for `key`, which names the listed files or folders by absolute paths.
ImageIndex CachedIndex(const std::string& key,
                       const std::function<bool(const ImageIndex&)>& is_current,
                       const std::function<ImageColumns()>& build);

// Returns whether each of the index's sources still has the stamp that the index holds. path_of(i) is the path of
// source i.
bool StampsHold(const ImageIndex& index, const std::function<std::string(int64_t)>& path_of);

}  // namespace lockstep
