#include "data/images/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/write_tar.h"
#include "data/images/open_images.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

using Files = std::vector<std::pair<std::string, std::string>>;  // names and contents

// A fixture that gives each test its own folder of files and its own cache folder.
class ImageSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    setenv("XDG_CACHE_HOME", (root_.string() + "-cache").c_str(), 1);
  }

  // Sets the time of change of the file `path` to an hour ago, so that an index may be cached
  // (data/images/index_cache.h).
  static void Settle(const fs::path& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }

  void WriteFile(const std::string& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::trunc) << bytes;
    Settle(root_ / name);
  }

  // Waits until no folder below root_ has changed within the last two seconds, so that an index may be cached. A
  // program cannot set a folder's time of change (st_ctim) to the past.
  void SettleFolders() const {
    const auto is_settled = [](const fs::path& folder) {
      struct stat status {};
      timespec now{};
      EXPECT_EQ(stat(folder.c_str(), &status), 0);
      clock_gettime(CLOCK_REALTIME, &now);
      return now.tv_sec > status.st_ctim.tv_sec + 2;
    };
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      while (entry.is_directory() && !is_settled(entry.path())) usleep(10'000);
    }
  }

  static std::string TarOf(const Files& files) {
    std::string bytes;
    for (const auto& [name, content] : files) bytes += TarMemberOf(name, content);
    return bytes + TarEnd();
  }

  std::string PathOf(const std::string& name) const { return (root_ / name).string(); }

  std::shared_ptr<const ImageSource> Open(ImageSourceOptions options = {}) const {
    if (options.files.empty()) options.files = {root_.string()};
    return OpenImageSource(options);
  }

  static std::string Load(const ImageSource& source, int64_t i) {
    std::vector<std::byte> buffer;
    const auto bytes = source.Load(i, buffer);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Returns the text "label: content" for each sample.
  static std::vector<std::string> Samples(const ImageSource& source) {
    std::vector<std::string> samples;
    for (int64_t i = 0; i < source.size(); ++i) {
      samples.push_back(fmt::format("{}: {}", source.LabelOf(i), Load(source, i)));
    }
    return samples;
  }

  std::string ErrorOf(const ImageSourceOptions& options = {}) const {
    return DataErrorOf([&] { Open(options); });
  }

  size_t CachedIndexes() const {
    const fs::path folder = root_.string() + "-cache/lockstep/index";
    return fs::exists(folder) ? std::distance(fs::directory_iterator(folder), {}) : 0;
  }

  ino_t InodeOfCachedIndex() const {
    const fs::path folder = root_.string() + "-cache/lockstep/index";
    struct stat status {};
    EXPECT_EQ(stat(fs::directory_iterator(folder)->path().c_str(), &status), 0);
    return status.st_ino;
  }

  fs::path root_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

class ImageSourceOrder : public ImageSourceTest {};
class ImageShards : public ImageSourceTest {};
class ImageIndexCached : public ImageSourceTest {};

TEST_F(ImageSourceOrder, IsThatOfPathsInFoldersAndShards) {
  Files files;
  for (const char* name :
       {"b/x.jpg", "b/x/1.jpg", "b/x y.jpg", "b/x-y/1.png", "b/x/1/2.jpeg", "b/X.JPG", "b c/1.jpg",
        "b-c/1.jpg", "a/\xc3\xa4.jpg", "a/z.jpg", "a/\x01.png", "b/x.jpg.png"}) {
    files.emplace_back(name, std::string("content of ") + name);
  }
  std::vector<fs::path> expected;
  for (const auto& [name, content] : files) expected.emplace_back(name);
  std::ranges::sort(expected);
  files.emplace_back("a/no image.txt", "");
  files.emplace_back("a/.jpg", "");
  files.emplace_back("a/._z.jpg", "");
  for (const char* hidden : {".ipynb_checkpoints/1.jpg", "b/.git/1.jpg", "__MACOSX/a/1.jpg",
                             "lost+found/1.jpg", "a/@eaDir/1.jpg"}) {
    files.emplace_back(hidden, "");
  }
  for (const auto& [name, content] : files) WriteFile("folder/" + name, content);
  std::mt19937 random(1);
  for (int round = 0; round < 10; ++round) {
    std::ranges::shuffle(files, random);
    const auto middle = files.begin() + static_cast<int64_t>(random() % files.size());
    WriteFile("shards/1.tar", TarOf({files.begin(), middle}));
    WriteFile("shards/0.tar", TarOf({middle, files.end()}));
    const auto folder = Open({.files = {PathOf("folder")}});
    const auto shards = Open({.files = {PathOf("shards")}});
    const auto listed = Open({.files = {PathOf("shards/0.tar"), PathOf("shards/1.tar")}});
    EXPECT_THAT(folder->class_names(), ElementsAre("a", "b", "b c", "b-c"));
    ASSERT_EQ(folder->size(), static_cast<int64_t>(expected.size()));
    EXPECT_EQ(shards->class_names(), folder->class_names());
    EXPECT_EQ(Samples(*shards), Samples(*folder));
    EXPECT_EQ(Samples(*listed), Samples(*folder));
    EXPECT_EQ(listed->Fingerprint(), shards->Fingerprint());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(Load(*folder, i), "content of " + expected[i].string());
      EXPECT_EQ(folder->NameOf(i), (root_ / "folder" / expected[i]).string());
      EXPECT_EQ(folder->PathOf(i), expected[i].string());
      EXPECT_EQ(shards->PathOf(i), expected[i].string());
      EXPECT_THAT(shards->NameOf(i),
                  AllOf(HasSubstr("shards/"), EndsWith(".tar: " + expected[i].string())));
    }
  }
}

TEST_F(ImageSourceOrder, ClassesInTheOrderOfTraining) {
  const Files files = {{"a/1.jpg", "a1"}, {"b/1.jpg", "b1"}, {"b/2.jpg", "b2"}, {"c/1.jpg", "c1"}};
  for (const auto& [name, content] : files) WriteFile("folder/" + name, content);
  WriteFile("shards/0.tar", TarOf(files));
  for (const char* kind : {"folder", "shards"}) {
    ImageSourceOptions options{.files = {PathOf(kind)}, .classes = {"d", "b", "a", "c"}};
    EXPECT_THAT(Samples(*Open(options)), ElementsAre("1: b1", "1: b2", "2: a1", "3: c1"));
    EXPECT_EQ(Open(options)->classes(), 4);
    options.classes = {"b", "a"};
    EXPECT_THAT(ErrorOf(options),
                AllOf(HasSubstr(kind), HasSubstr("no class \"c\" was trained on")));
  }
}

TEST_F(ImageShards, LabelsFromNumbers) {
  WriteFile("1.tar", TarOf({{"./a/002.cls", " 7\n"},
                            {"a/002.jpg", "two"},
                            {"a/002.json", "{}"},
                            {"a/001.mask.png", "mask"},
                            {"a/001.PNG", "one"},
                            {"a/001.cls", "0"}}));
  WriteFile("0.tar", TarOf({{"003.jpeg", "three"}, {"003.cls", "00012"}}));
  const auto source = Open();
  EXPECT_THAT(Samples(*source), ElementsAre("12: three", "7: two", "0: one"));
  EXPECT_EQ(source->classes(), 13);
  EXPECT_THAT(source->class_names(), ElementsAre());
  EXPECT_THAT(source->NameOf(1), EndsWith("1.tar: a/002.jpg"));
  EXPECT_EQ(Open({.class_count = 20})->classes(), 20);
  EXPECT_THAT(ErrorOf({.class_count = 12}),
              HasSubstr("0.tar: 003.jpeg: label 12 is out of range: data.classes is 12"));
  EXPECT_THAT(ErrorOf({.classes = {"a", "b"}}), HasSubstr("label 12 is out of range"));
}

TEST_F(ImageShards, RefusesLabelsThatDoNotFit) {
  const auto error_of = [&](const Files& files) {
    WriteFile("0.tar", TarOf(files));
    return ErrorOf();
  };
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "x"}}),
              HasSubstr("0.tar: 1.cls: \"x\" is no class"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "-1"}}), HasSubstr("0.tar: 1.cls: \"-1\""));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", ""}}), HasSubstr("0.tar: 1.cls: \"\""));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "99999999999"}}), HasSubstr("no class's number"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", std::string(100, '1')}}),
              HasSubstr("no class's number"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "1"}, {"1.cls", "1"}}), HasSubstr("1.cls: twice"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.png", ""}, {"1.cls", "1"}}),
              HasSubstr("1.png: a second image of one sample, beside 1.jpg"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "1"}, {"dog/2.jpg", ""}}),
              HasSubstr("0.tar: dog/2.jpg: no label: there is no .cls member of its name, as there "
                        "is of all others: add"));
  EXPECT_THAT(
      error_of({{"1.jpg", ""}, {"1.cls", "1"}, {"2.jpg", ""}, {"3.jpg", ""}}),
      HasSubstr("0.tar: 2.jpg: no label: there is no .cls member of its name (2 of 3 images "
                "have none): add"));
  EXPECT_THAT(error_of({{"dog/1.jpg", ""}, {"2.jpg", ""}}),
              HasSubstr("0.tar: 2.jpg: no label: put it"));
  EXPECT_THAT(error_of({{"1.txt", ""}}), HasSubstr("no .jpg, .jpeg, .png, .webp or .bmp members"));
  EXPECT_THAT(error_of({{"1.cls", "1"}}), HasSubstr("no .jpg, .jpeg, .png, .webp or .bmp members"));
}

TEST_F(ImageShards, RefusesNamesThatFallTogether) {
  const auto error_of = [&](const Files& files) {
    WriteFile("0.tar", TarOf(files));
    return ErrorOf();
  };
  const std::string two = error_of({{"1.jpg", ""},
                                    {"1.cls", "1"},
                                    {"s/scan_2.5_1.jpg", ""},
                                    {"s/scan_2.5_1.cls", "0"},
                                    {"s/scan_2.5_2.jpg", ""},
                                    {"s/scan_2.5_2.cls", "0"}});
  EXPECT_THAT(two, HasSubstr("0.tar: s/scan_2.5_1.jpg: an image of the sample \"s/scan_2\", as a "
                             "sample's name ends at the first dot, so that it and another one "
                             "would be lost"));
  EXPECT_THAT(two, HasSubstr("names with one dot, such as s/scan_2_5_1.jpg"));
  EXPECT_THAT(error_of({{"1.jpg", ""}, {"1.cls", "1"}, {"2.left.png", ""}, {"2.cls", "1"}}),
              HasSubstr("0.tar: 2.left.png: an image of the sample \"2\""));
  EXPECT_THAT(error_of({{"1.5.jpg", ""}, {"1.5.cls", "1"}}), HasSubstr("0.tar: 1.5.jpg: an image"));
}

TEST_F(ImageShards, SaysWhatIsLeftOut) {
  WriteFile("0.tar", TarOf({{"1.jpg", "one"},
                            {"1.CLS", "1"},
                            {"1.mask.png", "mask"},
                            {"1.fine.cls", "7"},
                            {"2.cls", "0"},
                            {"._1.jpg", "hidden"},
                            {"._1.cls", "hidden"},
                            {"__MACOSX/2.jpg", "hidden"}}));
  const auto source = Open();
  EXPECT_THAT(Samples(*source), ElementsAre("1: one"));
  EXPECT_THAT(source->Remarks(),
              AllOf(Contains(HasSubstr("0.tar: ._1.jpg and another one are left out: hidden")),
                    Contains(HasSubstr("0.tar: 1.mask.png is left out: a further image")),
                    Contains(HasSubstr("0.tar: 2.cls is left out: a label whose sample has no"))));
}

TEST_F(ImageShards, FollowsLinksToFiles) {
  const auto link = [](const std::string& name, const std::string& target, bool is_hard) {
    // A pax record begins with its own length, which has two digits here.
    const std::string records = fmt::format("{} linkpath={}\n", 13 + target.size(), target);
    return TarMemberOf("pax", records, 'x') + TarMemberOf(name, "", is_hard ? '1' : '2');
  };
  const std::string first = TarMemberOf("a/1.jpg", "one") + TarMemberOf("b/2.jpg", "two");
  const auto write = [&](const std::string& links) {
    WriteFile("0.tar", first + links + TarEnd());
  };
  write(link("b/3.jpg", "a/1.jpg", true) + link("b/4.jpg", "../a/1.jpg", false));
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: one", "1: two", "1: one", "1: one"));
  write(link("b/3.jpg", "/data/3.jpg", false));
  EXPECT_THAT(ErrorOf(), HasSubstr("0.tar: b/3.jpg: a link to /data/3.jpg, which this archive does "
                                   "not hold: pack what it leads to (tar --dereference)"));
  write(link("classes", "a", false) + link("b/more", "../a", false));
  EXPECT_THAT(ErrorOf(), HasSubstr("0.tar: classes: a link to a, a folder: pack"));
  write(link("b/more", "../a", false));
  EXPECT_THAT(Open()->Remarks(),
              ElementsAre(HasSubstr("0.tar: b/more is left out: a link to a folder")));
}

TEST_F(ImageShards, LabelsAreOptionalForPredictions) {
  WriteFile("0.tar", TarOf({{"2.jpg", "two"}, {"1.jpg", "one"}}));
  EXPECT_THAT(Samples(*Open({.class_count = 3, .label_optional = true})),
              ElementsAre("-1: one", "-1: two"));
  EXPECT_EQ(Open({.class_count = 3, .label_optional = true})->classes(), 3);
  WriteFile("0.tar", TarOf({{"2.jpg", "two"}, {"1.jpg", "one"}, {"1.cls", "1"}}));
  EXPECT_THAT(Samples(*Open({.class_count = 3, .label_optional = true})),
              ElementsAre("-1: two", "1: one"));
}

TEST_F(ImageSourceTest, RefusesFoldersOfBoth) {
  WriteFile("0.tar", TarOf({{"a/1.jpg", ""}}));
  WriteFile("beside.jpg", "");
  EXPECT_THAT(ErrorOf(), HasSubstr("tar files and the image \"beside.jpg\""));
  fs::remove(root_ / "beside.jpg");
  WriteFile("dog/1.jpg", "");
  EXPECT_THAT(ErrorOf(), HasSubstr("tar files and the folder \"dog\""));
}

TEST_F(ImageSourceTest, RefusesCompressedShards) {
  WriteFile("0.tar.gz", "");
  EXPECT_THAT(ErrorOf(), HasSubstr("0.tar.gz: a compressed archive: decompress it"));
  EXPECT_THAT(ErrorOf({.files = {PathOf("0.tar.gz")}}), HasSubstr("decompress it"));
  fs::remove(root_ / "0.tar.gz");
  WriteFile("0.tar", "\x1f\x8b" + std::string(600, 'x'));
  EXPECT_THAT(ErrorOf(), HasSubstr("0.tar: compressed with gzip: decompress it"));
}

TEST_F(ImageSourceTest, RefusesOtherNames) {
  WriteFile("0.tar", TarOf({{"a/1.jpg", ""}}));
  WriteFile("folder/a/1.jpg", "");
  const auto usage_error = [&](const std::vector<std::string>& files) {
    return MessageOf(ExitStatus::kUsage, [&] { Open({.files = files}); });
  };
  EXPECT_THAT(usage_error({PathOf("0.tar"), PathOf("folder")}), HasSubstr("folder is no tar file"));
  EXPECT_THAT(usage_error({PathOf("0.tar"), PathOf("folder/../0.tar")}),
              HasSubstr("the same tar file twice"));
  EXPECT_THAT(ErrorOf({.files = {PathOf("nowhere")}}), HasSubstr("nowhere: no such folder"));
  EXPECT_THAT(ErrorOf({.files = {PathOf("1.tar")}}),
              HasSubstr("1.tar: cannot be opened: No such file"));
}

TEST_F(ImageShards, NeverReadsAChangedShard) {
  const Files files = {{"a/1.jpg", "first"}, {"a/2.jpg", "second"}};
  const std::string tar = TarOf(files);
  const auto error_after = [&](bool loads_before, const auto& change) {
    WriteFile("0.tar", tar);
    const auto source = Open();
    if (loads_before) Load(*source, 0);
    change();
    return DataErrorOf([&] { Load(*source, 1); });
  };
  for (const bool loads_before : {false, true}) {
    // The shard is changed in place, which is noticed whether the shard is already open or not.
    EXPECT_THAT(error_after(loads_before, [&] { fs::resize_file(root_ / "0.tar", 700); }),
                HasSubstr("0.tar: has changed since"));
    EXPECT_THAT(
        error_after(loads_before,
                    [&] { std::ofstream(root_ / "0.tar") << std::string(tar.size(), 'x'); }),
        HasSubstr("0.tar: has changed since"));
  }
  // Another file replaces the shard, or the shard is removed. An error follows only if the shard was not yet open,
  // because an open shard still has the old content.
  const auto replace = [&] {
    WriteFile("new", tar);
    fs::rename(root_ / "new", root_ / "0.tar");
  };
  EXPECT_THAT(error_after(false, replace), HasSubstr("0.tar: has changed since"));
  EXPECT_THAT(error_after(false, [&] { fs::remove(root_ / "0.tar"); }),
              HasSubstr("0.tar: cannot be opened: No such file"));
  WriteFile("0.tar", tar);
  const auto source = Open();
  Load(*source, 0);
  replace();
  EXPECT_EQ(Load(*source, 1), "second");
}

TEST_F(ImageShards, MoreShardsThanDescriptors) {
  constexpr int kShards = 100;
  for (int i = 0; i < kShards; ++i) {
    WriteFile(fmt::format("{:03}.tar", i),
              TarOf({{fmt::format("a/{:03}.jpg", i), std::to_string(i)}}));
  }
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 40, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto source = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 3000; ++i) {
        const auto sample = static_cast<int64_t>(random() % kShards);
        EXPECT_EQ(Load(*source, sample), std::to_string(sample));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ImageIndexCached, FoldersAreListedOnceAndAgainWhenEntriesComeOrGo) {
  WriteFile("a/deep/er/1.jpg", "1");
  WriteFile("b/2.jpg", "2");
  const auto names = [&] {
    std::vector<std::string> names;
    const auto source = Open();
    for (int64_t i = 0; i < source->size(); ++i) {
      names.push_back(fs::path(source->NameOf(i)).lexically_relative(root_));
    }
    return names;
  };
  EXPECT_THAT(names(), ElementsAre("a/deep/er/1.jpg", "b/2.jpg"));
  EXPECT_EQ(CachedIndexes(), 0U);  // the folder has just changed, so no index is cached
  SettleFolders();
  names();
  ASSERT_EQ(CachedIndexes(), 1U);
  const std::string fingerprint = Open()->Fingerprint();

  // The next call reads the cached index and does not write the file again.
  const ino_t kept = InodeOfCachedIndex();
  EXPECT_THAT(names(), testing::SizeIs(2));
  EXPECT_EQ(InodeOfCachedIndex(), kept);

  for (const char* changed : {"a/deep/er", "a", "b"}) {
    SettleFolders();
    names();
    const fs::file_time_type time = fs::last_write_time(root_ / changed);
    WriteFile(std::string(changed) + "/new.jpg", "new");
    fs::last_write_time(root_ / changed, time);  // tar and rsync restore times like this
    EXPECT_THAT(names(), Contains(std::string(changed) + "/new.jpg"));
    fs::remove(root_ / changed / "new.jpg");
    EXPECT_THAT(names(), testing::Not(Contains(std::string(changed) + "/new.jpg")));
  }
  EXPECT_EQ(Open()->Fingerprint(), fingerprint);
  WriteFile("c/5.jpg", "5");
  EXPECT_THAT(names(), Contains("c/5.jpg"));
  EXPECT_NE(Open()->Fingerprint(), fingerprint);
}

TEST_F(ImageIndexCached, ShardsAreReadOnceAndAgainWhenOneChanges) {
  WriteFile("0.tar", TarOf({{"a/1.jpg", "1"}}));
  WriteFile("1.tar", TarOf({{"b/2.jpg", "2"}}));
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: 1", "1: 2"));
  ASSERT_EQ(CachedIndexes(), 1U);
  // The damaged shard keeps its size and its time of change, so it is not indexed again. After Settle() has set another
  // time, it is indexed again and refused.
  const fs::file_time_type time = fs::last_write_time(root_ / "1.tar");
  {
    std::fstream file(root_ / "1.tar", std::ios::in | std::ios::out | std::ios::binary);
    file << "damaged";
  }
  fs::last_write_time(root_ / "1.tar", time);
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: 1", "1: 2"));
  Settle(root_ / "1.tar");
  EXPECT_THAT(ErrorOf(), HasSubstr("1.tar: no tar archive"));

  WriteFile("1.tar", TarOf({{"b/3.jpg", "3"}, {"c/4.jpg", "4"}}));
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: 1", "1: 3", "2: 4"));
  WriteFile("2.tar", TarOf({{"a/0.jpg", "0"}}));
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: 0", "0: 1", "1: 3", "2: 4"));
  fs::remove(root_ / "1.tar");
  EXPECT_THAT(Samples(*Open()), ElementsAre("0: 0", "0: 1"));
  EXPECT_EQ(CachedIndexes(), 1U);
}

}  // namespace
}  // namespace lockstep
