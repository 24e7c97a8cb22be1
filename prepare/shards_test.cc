#include "prepare/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "base/files/tar_index.h"
#include "base/files/tar_writer.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "prepare/image_files.h"

namespace lockstep {
namespace {

using Contents = std::map<std::string, std::string>;

// Returns the names of an archive's members in order, and adds the members' contents to `contents`.
std::vector<std::string> ReadTar(const std::string& path, Contents& contents) {
  const std::string bytes = ReadFile(path);
  std::vector<std::string> names;
  VisitTar(ReadableFile(path), [&](const TarMember& member) {
    names.emplace_back(member.name);
    contents[names.back()] = bytes.substr(member.offset, member.bytes);
  });
  return names;
}

TEST(TarWriter, IsReadAsItWasWritten) {
  Contents written;
  std::string archive;
  // The lengths lie around the limits of tar's name fields (100 bytes, and 155 + 1 + 100 with a prefix) and beyond. The
  // slashes are at various places.
  for (const size_t length : {1, 99, 100, 101, 156, 200, 255, 256, 257, 300, 999, 1000, 2000}) {
    for (const size_t slash_every : {5, 60, 99, 120, 5000}) {
      std::string name;
      while (name.size() < length) {
        name += (name.size() + 1) % slash_every == 0 && name.size() + 1 < length ? '/' : 'n';
      }
      const std::string content(length * 7 % 1500, static_cast<char>('a' + length % 20));
      const size_t before = archive.size();
      AppendTarMember(name, std::as_bytes(std::span(content)), archive);
      EXPECT_EQ(archive.size() - before,
                TarMemberBytes(name, static_cast<int64_t>(content.size())));
      written[name] = content;
    }
  }
  AppendTarEnd(archive);
  const std::string path = NewPath();
  WriteFile(path, archive);
  Contents found;
  ReadTar(path, found);
  EXPECT_TRUE(found == written);
}

// Writes 40 images into two class folders, and one text file. Adds the images to `contents`, and returns the path of
// the folder that holds the class folders.
std::string WriteSource(Contents& contents) {
  const std::string source = NewPath();
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::string(i % 2 ? "dog/" : "cat/deep/") + std::to_string(i) + ".jpg";
    contents[name] = std::string(100 * i, 'x');
    WriteFile(source + "/" + name, contents[name]);
  }
  WriteFile(source + "/dog/notes.txt", "no image");
  return source;
}

TEST(Shards, HoldEachImageOnceInTheSeedsOrder) {
  Contents written;
  const std::string source = WriteSource(written);
  std::map<uint64_t, std::vector<std::string>> orders;
  for (const uint64_t seed : {0, 0, 1}) {
    const std::string destination = NewPath();
    PrepareShards({.source = source,
                   .destination = destination,
                   .shard_bytes = 10'000,
                   .seed = seed,
                   .threads = 1 + static_cast<int>(orders.size())});
    Contents found;
    std::vector<std::string> order;
    for (int shard = 0;; ++shard) {
      const std::string path = fmt::format("{}/shard-{:06}.tar", destination, shard);
      if (!std::filesystem::exists(path)) break;
      const std::vector<std::string> names = ReadTar(path, found);
      EXPECT_GE(names.size(), 1);
      order.insert(order.end(), names.begin(), names.end());
    }
    EXPECT_TRUE(found == written);
    EXPECT_EQ(order.size(), written.size());
    const auto [before, is_first] = orders.emplace(seed, order);
    if (!is_first) {
      EXPECT_EQ(before->second, order);
    }
  }
  EXPECT_NE(orders[0], orders[1]);
  // Classes are mixed: the first ten images are not all of one class.
  int dogs = 0;
  for (int i = 0; i < 10; ++i) dogs += orders[0][i].starts_with("dog/") ? 1 : 0;
  EXPECT_GT(dogs, 0);
  EXPECT_LT(dogs, 10);
}

TEST(Shards, RefusesImagesWithoutAClass) {
  Contents contents;
  const std::string source = WriteSource(contents);
  WriteFile(source + "/odd.png", "x");
  EXPECT_EQ(
      DataErrorOf([&] { PrepareShards({.source = source, .destination = NewPath()}); }),
      source + "/odd.png: an image beside the classes: put each into the folder of its class");
}

TEST(Shards, NoticesAChangedSource) {
  Contents contents;
  const std::string source = WriteSource(contents);
  std::vector<ImageFile> files = ListImages(source);
  std::vector<std::byte> buffer;
  EXPECT_EQ(ReadImageFile(source, files[1], buffer).size(), files[1].stamp.bytes);
  const std::string path = source + "/" + files[1].name;
  WriteFile(path, "another content");
  EXPECT_EQ(DataErrorOf([&] { ReadImageFile(source, files[1], buffer); }),
            path + ": has changed since the run began");
  std::filesystem::remove(path);
  EXPECT_EQ(DataErrorOf([&] { ReadImageFile(source, files[1], buffer); }),
            path + ": cannot be opened: No such file or directory");
}

TEST(Shards, RefusesSourcesInDestinations) {
  Contents contents;
  const std::string source = WriteSource(contents);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return MessageOf(ExitStatus::kUsage,
                     [&] { PrepareShards({.source = from, .destination = to}); });
  };
  EXPECT_THAT(refusal(source, source + "/new"), testing::EndsWith(", which is read"));
  EXPECT_THAT(refusal(source + "/dog", source), testing::EndsWith(", which is to be made"));
  EXPECT_THAT(refusal(source, source), testing::HasSubstr("lies in"));
  EXPECT_EQ(refusal(source, "."), "\".\": names no folder that can be made");
}

}  // namespace
}  // namespace lockstep
