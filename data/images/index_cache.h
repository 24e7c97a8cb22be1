// Indexes of images, kept from one run to the next.
//
// Promise: CachedIndex() gives what `build` would give. No cache ever makes a run fail: where its folder
// cannot be made, read or written, there is none.
//
// Protocol:
//   1. The file of `key` is DIR/HASH: DIR is $XDG_CACHE_HOME/lockstep/index, without that variable
//      $HOME/.cache/lockstep/index; HASH is XXH3 of this machine's name and the key. The machine's name,
//      since several may share a home and not the data; the file holds both and is checked for them.
//   2. It is mapped, its checksums are compared, and `is_current` compares the stamps of all that was
//      listed with what they are now. Any doubt: the next step.
//   3. `build` lists everything. Each stamp is taken before what it stands for is read.
//   4. A stamp of the last two seconds proves nothing, since clocks of file systems are coarse and a
//      change in the same tick would leave it as it is: such an index is not kept.
//   5. The index is written to DIR/HASH.??????, which is renamed to DIR/HASH: readers find a whole file or
//      none, and of several writers the last one stays. It is not synced: the checksums tell.
//   6. What was written is mapped in place of the columns in memory.
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
