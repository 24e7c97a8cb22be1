// Indexes of images that are kept from one run to the next.
//
// Promise: CachedIndex() gives what `build` would give. A cache never makes a run fail: if its folder cannot be made,
// read or written, there is no cache.
//
// Protocol:
//   1. The file of `key` is DIR/HASH: DIR is $XDG_CACHE_HOME/lockstep/index, without that variable
//      $HOME/.cache/lockstep/index; HASH is XXH3 of this machine's name and the key. The machine's name,
//      since several may share a home and not the data; the file holds both and is checked for them.
//   2. The file is mapped, its checksums are compared, and `is_current` compares the stored stamp (size, time of
//      change, inode) of each file or folder that was listed with its present stamp. If anything is in doubt, go to
//      the next step.
//   3. `build` lists everything. It takes each stamp before it reads what the stamp stands for.
//   4. A stamp of the last two seconds proves nothing, because clocks of file systems are coarse: a change in the same
//      tick would not change the stamp. An index with such a stamp is not kept.
//   5. The index is written to DIR/HASH.??????, which is renamed to DIR/HASH. Readers find a whole file or none, and
//      of several writers the last one wins. The file is not synced, because its checksums show damage.
//   6. The written file is mapped and replaces the columns in memory.
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

// `key`: what is listed, by absolute paths.
ImageIndex CachedIndex(const std::string& key,
                       const std::function<bool(const ImageIndex&)>& is_current,
                       const std::function<ImageColumns()>& build);

// Whether each of the index's sources still has its stamp; path_of(i): where source `i` lies.
bool StampsHold(const ImageIndex& index, const std::function<std::string(int64_t)>& path_of);

}  // namespace lockstep
