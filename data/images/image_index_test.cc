#include "data/images/image_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "data/images/index_cache.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

// Returns the columns of a class of two images, a class of one image, and an image without a class, in two shards.
// `changed_ns` is the time of change of both shards.
ImageColumns SomeColumns(int64_t changed_ns = 1) {
  ImageColumns columns{.layout = ImageLayout::kShards};
  for (const char* source : {"a.tar", "b.tar"}) {
    columns.sources.Add(source);
    columns.stamps.push_back({.bytes = 7, .changed_ns = changed_ns, .inode = 9});
  }
  columns.classes.Add("cat");
  columns.classes.Add("dog");
  columns.first_of_class = {0, 2, 3};
  for (const char* path : {"1.jpg", "deep/2.jpg", "3.png", "4.jpg"}) columns.paths.Add(path);
  for (uint32_t i = 0; i < 4; ++i)
    columns.places.push_back({.offset = i, .bytes = i, .shard = i % 2});
  return columns;
}

std::string BytesOf(const ImageIndex& index, std::string_view key) {
  std::string bytes;
  index.Write(key, [&](std::span<const std::byte> piece) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bytes;
}

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

std::optional<ImageIndex> FromBytes(const std::string& bytes, std::string_view key) {
  const std::string path = PathOf("index");
  std::ofstream(path) << bytes;
  return ImageIndex::FromFile(MappedFile(path), key);
}

void ExpectSome(const ImageIndex& index) {
  ASSERT_EQ(index.size(), 4);
  EXPECT_EQ(index.layout(), ImageLayout::kShards);
  EXPECT_EQ(index.sources()[1], "b.tar");
  EXPECT_EQ(index.stamps()[1].bytes, 7);
  EXPECT_EQ(index.classes()[1], "dog");
  std::vector<int64_t> classes;
  std::vector<std::string> paths;
  for (int64_t i = 0; i < 4; ++i) {
    classes.push_back(index.ClassOf(i));
    paths.emplace_back(index.path(i));
    EXPECT_EQ(index.place(i).offset, i);
  }
  EXPECT_THAT(classes, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(paths, ElementsAre("1.jpg", "deep/2.jpg", "3.png", "4.jpg"));
  EXPECT_EQ(index.FirstOf(1), 2);
  EXPECT_EQ(index.FirstOf(2), 3);
  EXPECT_EQ(index.FirstOf(3), 4);
}

TEST(ImageIndex, IsTheSameFromAFile) {
  const ImageIndex index(SomeColumns());
  ExpectSome(index);
  const std::optional<ImageIndex> read = FromBytes(BytesOf(index, "key"), "key");
  ASSERT_TRUE(read);
  ExpectSome(*read);
  EXPECT_EQ(read->content_hash(), index.content_hash());
  EXPECT_EQ(BytesOf(*read, "key"), BytesOf(index, "key"));
  EXPECT_FALSE(FromBytes(BytesOf(index, "key"), "another"));
}

TEST(ImageIndex, ItsHashIsThatOfImagesAlone) {
  const uint64_t hash = ImageIndex(SomeColumns()).content_hash();
  EXPECT_EQ(ImageIndex(SomeColumns(2)).content_hash(), hash);
  ImageColumns other = SomeColumns();
  other.places[3].offset = 5;
  EXPECT_NE(ImageIndex(other).content_hash(), hash);
  other = SomeColumns();
  other.first_of_class[1] = 1;
  EXPECT_NE(ImageIndex(other).content_hash(), hash);
}

TEST(ImageIndex, RefusesEveryCutAndEveryDamagedByte) {
  const std::string bytes = BytesOf(ImageIndex(SomeColumns()), "key");
  for (size_t size = 1; size < bytes.size(); ++size) {
    ASSERT_FALSE(FromBytes(bytes.substr(0, size), "key")) << size;
  }
  ASSERT_FALSE(FromBytes(bytes + '\0', "key"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    ASSERT_FALSE(FromBytes(damaged, "key")) << "byte " << i;
  }
}

// A fixture that gives each test its own cache folder.
class IndexCache : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
  }

  // Calls CachedIndex(), checks the index that CachedIndex() returns, and returns whether CachedIndex() called its
  // argument `build`.
  bool Builds(const std::string& key = "key", bool current = true, int64_t changed_ns = 1) const {
    bool builds = false;
    const ImageIndex index = CachedIndex(
        key, [&](const ImageIndex&) { return current; },
        [&] {
          builds = true;
          return SomeColumns(changed_ns);
        });
    ExpectSome(index);
    return builds;
  }

  fs::path TheFile() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(home_ / ".cache/lockstep/index")) {
      files.push_back(entry.path());
    }
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }

  fs::path home_ = PathOf(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(IndexCache, BuildsOnce) {
  EXPECT_TRUE(Builds());
  EXPECT_FALSE(Builds());
  EXPECT_TRUE(Builds("another"));
  EXPECT_FALSE(Builds("another"));
  EXPECT_FALSE(Builds());
}

TEST_F(IndexCache, RebuildsWhatIsOutdated) {
  EXPECT_TRUE(Builds());
  EXPECT_TRUE(Builds("key", /*current=*/false));
  EXPECT_FALSE(Builds());
  TheFile();  // TheFile() fails if there is a second file
}

TEST_F(IndexCache, RebuildsWhatIsDamaged) {
  EXPECT_TRUE(Builds());
  const fs::path file = TheFile();
  std::stringstream content;
  content << std::ifstream(file).rdbuf();
  const std::string bytes = content.str();
  for (const std::string& damaged :
       {bytes.substr(0, bytes.size() - 9), std::string(), bytes + "more",
        bytes.substr(0, 200) + "x" + bytes.substr(201)}) {
    std::ofstream(file, std::ios::trunc) << damaged;
    EXPECT_TRUE(Builds());
    EXPECT_FALSE(Builds());
  }
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_TRUE(Builds());
  EXPECT_FALSE(Builds());
}

// Checks that an index is cached if the last change was an hour ago, but not if it was just now: a file system's clock
// may give two changes in the same tick the same time.
TEST_F(IndexCache, KeepsNothingThatHasJustChanged) {
  const int64_t now_ns =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_TRUE(Builds("key", true, now_ns));
  EXPECT_TRUE(Builds("key", true, now_ns - 3'600'000'000'000));
  EXPECT_FALSE(Builds());
}

TEST_F(IndexCache, GoesWithoutAFolder) {
  for (const char* home : {"", "relative", "/proc/nowhere", "/dev/null"}) {
    setenv("HOME", home, 1);
    EXPECT_TRUE(Builds()) << home;
    EXPECT_TRUE(Builds()) << home;
  }
  unsetenv("HOME");
  EXPECT_TRUE(Builds());
  EXPECT_TRUE(Builds());
  setenv("XDG_CACHE_HOME", (home_ / "xdg").c_str(), 1);
  EXPECT_TRUE(Builds());
  EXPECT_FALSE(Builds());
  EXPECT_TRUE(fs::exists(home_ / "xdg/lockstep/index"));
  EXPECT_FALSE(fs::exists("relative"));
}

TEST_F(IndexCache, GoesWithoutAFolderOfAnother) {
  const fs::path folder = home_ / ".cache/lockstep/index";
  EXPECT_TRUE(Builds());
  fs::rename(folder, home_ / "moved");
  fs::create_directory_symlink(home_ / "moved", folder);
  EXPECT_TRUE(Builds());
  EXPECT_TRUE(Builds());
  fs::remove(folder);
  fs::rename(home_ / "moved", folder);
  EXPECT_FALSE(Builds());
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(folder, others, fs::perm_options::add);
    EXPECT_TRUE(Builds());
    fs::permissions(folder, others, fs::perm_options::remove);
    EXPECT_FALSE(Builds());
  }
  if (geteuid() != 0) return;  // only root can give a folder to another user
  ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(Builds());
}

TEST_F(IndexCache, SeveralWriteAtOnce) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { Builds("key", /*current=*/i % 2 == 0); });
    }
    for (std::thread& thread : threads) thread.join();
    TheFile();
    EXPECT_FALSE(Builds());
  }
}

}  // namespace
}  // namespace lockstep
