// KeepEncoded(): wraps a source of images so that the bytes of loaded files stay in memory, up to a budget.
#pragma once

#include <memory>

#include "data/images/image_source.h"
#include "data/images/kept_bytes.h"

namespace lockstep {

std::shared_ptr<const ImageSource> KeepEncoded(std::shared_ptr<const ImageSource> source,
                                               std::shared_ptr<MemoryBudget> budget);

}  // namespace lockstep
