// KeepEncoded(): wraps a source of images. The result keeps the bytes of each loaded file in memory if the budget has
// room for them.
#pragma once

#include <memory>

#include "data/images/image_source.h"
#include "data/images/kept_bytes.h"

namespace lockstep {

std::shared_ptr<const ImageSource> KeepEncoded(std::shared_ptr<const ImageSource> source,
                                               std::shared_ptr<MemoryBudget> budget);

}  // namespace lockstep
