// Image folders packed into tar shards, which are read in long runs instead of file by file.
//
// Promise: DST/shard-000000.tar, ... hold each image of SRC's class folders once, byte for byte, as
// CLASS/NAME. The order is data/dataset/permutation.h's for the seed, so that each shard is a sample of all
// classes. A shard ends with the image that makes it reach `shard_bytes`. The same source and options
// give the same bytes, whatever the threads and interruptions (prepare/output_folder.h).
//
// what can fail -> what the caller sees -> the test that shows it (prepare/shards_test.cc)
//   an image beside the class folders -> Error (kData) -> Shards.RefusesImagesWithoutAClass
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
  bool live = false;  // standard output is a terminal
};

// Returns what it has done, in a line. Throws Error (kUsage, kData).
std::string PrepareShards(const PrepareShardsOptions& options);

}  // namespace lockstep
