#include "prepare/shards.h"

#include <vector>

#include "base/error.h"
#include "base/files/tar_writer.h"
#include "base/in_threads.h"
#include "data/dataset/permutation.h"
#include "prepare/image_files.h"
#include "prepare/output_folder.h"
#include "prepare/work_progress.h"

namespace lockstep {
namespace {

std::string NameOfShard(int64_t shard) { return fmt::format("shard-{:06}.tar", shard); }

// Returns the ends of the shards: shard s holds the images at the places [ends[s - 1], ends[s]) of `order`.
std::vector<int64_t> EndsOfShards(const std::vector<ImageFile>& files, const Permutation& order,
                                  int64_t shard_bytes) {
  std::vector<int64_t> ends;
  int64_t bytes = 0;
  const auto count = static_cast<int64_t>(files.size());
  for (int64_t place = 0; place < count; ++place) {
    const ImageFile& file = files[order.Of(place)];
    bytes += TarMemberBytes(file.name, file.stamp.bytes);
    if (bytes < shard_bytes && place + 1 < count) continue;
    ends.push_back(place + 1);
    bytes = 0;
  }
  return ends;
}

}  // namespace

std::string PrepareShards(const PrepareShardsOptions& options) {
  RequireApart(options.source, options.destination);
  const std::string destination = FolderName(options.destination);
  const std::vector<ImageFile> files = ListImages(options.source);
  for (const ImageFile& file : files) {
    if (file.name.find('/') == std::string::npos) {
      throw DataError("{}/{}: an image beside the classes: put each into the folder of its class",
                      options.source, file.name);
    }
  }
  OutputFolder output(destination, {destination},
                      {"prepare shards", SourceLine(options.source, files),
                       fmt::format("shards of {} bytes", options.shard_bytes),
                       fmt::format("--seed {}", options.seed)});
  if (output.is_committed()) return fmt::format("{}: complete", destination);

  const Permutation order(static_cast<int64_t>(files.size()), options.seed, /*round=*/0);
  const std::vector<int64_t> ends = EndsOfShards(files, order, options.shard_bytes);
  const auto begin_of = [&](int64_t shard) { return shard == 0 ? 0 : ends[shard - 1]; };
  std::vector<int64_t> missing;
  int64_t kept = 0;
  for (int64_t shard = 0; shard < static_cast<int64_t>(ends.size()); ++shard) {
    if (output.Has(NameOfShard(shard))) {
      kept += ends[shard] - begin_of(shard);
    } else {
      missing.push_back(shard);
    }
  }
  WorkProgress progress(options.live, "images", static_cast<double>(files.size()),
                        static_cast<double>(kept));
  InThreads(options.threads, static_cast<int64_t>(missing.size()), [&](int64_t item) {
    const int64_t shard = missing[item];
    UnfinishedFile file(output.files() + "/" + NameOfShard(shard));
    int64_t bytes = 0;
    std::vector<std::byte> buffer;
    std::string blocks;
    for (int64_t place = begin_of(shard); place < ends[shard]; ++place) {
      const ImageFile& image = files[order.Of(place)];
      blocks.clear();
      AppendTarMember(image.name, ReadImageFile(options.source, image, buffer), blocks);
      if (place + 1 == ends[shard]) AppendTarEnd(blocks);
      file.Write(std::as_bytes(std::span(blocks)), bytes);
      bytes += static_cast<int64_t>(blocks.size());
      progress.Add(1);
    }
    file.Finish();
  });
  output.Commit({{"", destination}});

  int64_t bytes = 0;
  for (const ImageFile& file : files) bytes += file.stamp.bytes;
  return fmt::format("{}: {} images, {:.1f} MB, in {} shards; {} written in {:.2f} s", destination,
                     files.size(), 1e-6 * static_cast<double>(bytes), ends.size(), missing.size(),
                     progress.seconds());
}

}  // namespace lockstep
