// `lockstep prepare shards`: packs the images of class folders into tar files (shards). Reading one large file is
// faster than reading many small files.
//
// Promise: DST/shard-000000.tar, ... hold each image of SRC's class folders once, byte for byte, as CLASS/NAME. The
// images are in the pseudo-random order that data/dataset/permutation.h gives for the seed, so each shard is a random
// sample of all classes. A shard ends with the image that makes the shard reach `shard_bytes`; only the last shard may
// be smaller. The same source and options give the same bytes. Neither the number of threads nor interruptions change
// the bytes (prepare/output_folder.h).
//
// what can fail -> what the caller sees -> the test that shows it (prepare/shards_test.cc)
//   an image lies beside the class folders, not in one -> Error (kData) -> Shards.RefusesImagesWithoutAClass
//   a file that changes while it is packed -> Error (kData) -> Shards.NoticesAChangedSource
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct PrepareShardsOptions {
  std::string source;
  std::string destination;
  int64_t shard_bytes = int64_t{256} << 20;
  uint64_t seed = 0;
  int threads = 1;
  bool live = false;  // whether standard output is a terminal
};

// Packs the images into shards. Returns one line that says what was done. Throws Error (kUsage, kData).
std::string PrepareShards(const PrepareShardsOptions& options);

}  // namespace lockstep
