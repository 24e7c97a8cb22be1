// Reads image shards: JPEG, PNG, WebP and BMP files in tar archives.
//
// Promise: all shards together follow one of two conventions.
//   kShards: a member's first folder is its class, as in a folder of images. Samples have the same order as in a
//     folder of images, by classes and names, whichever shard they lie in. Two members of the same name in two shards
//     are two samples.
//   kNumberedShards (WebDataset): 000123.jpg is a sample, and 000123.cls holds its class as a decimal number in text.
//     The .cls member lies in the same shard, before or after the image. The part of a member's name before the first
//     dot of the file's name is the sample's name, and the rest (jpg, cls) says what the member holds. Members of other
//     kinds are ignored, but no image that could be a sample is: see below. Samples are in the order of the shards and
//     of the members.
// If any shard has a .cls member, the convention is kNumberedShards.
//
// A remark counts what is left out: hidden members (base/files/hidden_name.h), images of formats that are not read,
// labels without an image, and further images of a sample (000123.mask.png beside 000123.jpg). A link to a file of the
// archive is this file.
//
// Invariants:
//   1. Images are read by pread from the place that the index gives. When a shard is opened, and after each read, its
//      size, time of change and inode are compared with those in the index. A difference is an error.
//   2. Shards are opened when they are first needed. The most recently used shards stay open. The number of open shards
//      is limited to a quarter of the number of file descriptors that the process may have, but the limit is at least 4
//      and at most 4,096.
//   3. Several threads index the shards. Each shard is indexed by one thread.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_source_test.cc)
//   a shard that is damaged or cut short (base/files/tar_index.h) -> Error (kData) when it is opened
//   an image without label, a .cls that holds no number, two labels or images of one sample
//     -> Error (kData) naming the member -> ImageShards.Refuses*
//   images whose names have several dots, so that their samples have no other image (scan_2.5_0001.jpg)
//     -> Error (kData) with their number and another name -> ImageShards.RefusesNamesThatFallTogether
//   a link that is named as an image, or may be a class, and leads to no file of the archive
//     -> Error (kData) naming it -> ImageShards.FollowsLinksToFiles
//   a shard that was overwritten or cut short after it was indexed, or replaced or removed before it was opened
//     -> Error (kData) from Load() -> ImageShards.NeverReadsAChangedShard
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/images/image_source.h"

namespace lockstep {

// Returns a source of the images in the tar files `shards`. Throws Error (kData, kUsage).
std::shared_ptr<const ImageSource> OpenImageShards(const std::vector<std::string>& shards,
                                                   const ImageSourceOptions& options);

}  // namespace lockstep
