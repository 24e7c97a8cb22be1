// OpenImageSource(): finds out whether images lie in class folders or in shards, and opens them as an ImageSource.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_source_test.cc)
//   no folder, no images, tar files beside folders, compressed tar files -> Error (kData) naming it
//     -> ImageSourceTest.Refuses*
//   a class or a label that was not trained on; images without a label -> Error (kData) naming one
//     -> ImageSourceOrder.ClassesInTheOrderOfTraining, ImageShards.RefusesLabelsThatDoNotFit
#pragma once

#include <memory>

#include "data/images/image_source.h"

namespace lockstep {

// Returns a source of the images in the folder or the shards of `options`. Throws Error (kData, kUsage).
std::shared_ptr<const ImageSource> OpenImageSource(const ImageSourceOptions& options);

}  // namespace lockstep
