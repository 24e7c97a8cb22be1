#include "base/files/tar_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/write_tar.h"

// Archives that Python's tarfile wrote are read in tests/shards_test.py.
namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using Files = std::vector<std::pair<std::string, std::string>>;

class TarIndex : public testing::Test {
 protected:
  // Returns the names and contents of the files that VisitTar() finds in an archive with the content `bytes`.
  Files FilesOf(const std::string& bytes) const {
    std::ofstream(path_) << bytes;
    const ReadableFile archive(path_);
    Files files;
    VisitTar(archive, [&](const TarMember& member) {
      ASSERT_LE(member.offset + member.bytes, static_cast<int64_t>(bytes.size()));
      if (member.kind == TarMember::kLinkToFolder || member.kind == TarMember::kLinkToNothing) {
        files.emplace_back(member.name, fmt::format("{} {}", KindText(member), member.target));
      } else {
        files.emplace_back(member.name, bytes.substr(member.offset, member.bytes));
      }
    });
    return files;
  }

  static const char* KindText(const TarMember& member) {
    return member.kind == TarMember::kLinkToFolder ? "folder" : "nothing";
  }

  std::string ErrorOf(const std::string& bytes) const {
    const std::string message = DataErrorOf([&] { FilesOf(bytes); });
    EXPECT_THAT(message, HasSubstr(path_));
    return message;
  }

  std::string path_ = testing::TempDir() + "/" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".tar";
};

// Returns the header with its checksum recomputed.
std::string WithChecksum(std::string header) {
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header;
}

std::string PaxRecord(const std::string& key, const std::string& value) {
  const size_t without = key.size() + value.size() + 3;
  size_t length = without + 1;
  while (length != without + std::to_string(length).size()) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

TEST_F(TarIndex, FindsFilesAlone) {
  const std::string archive = TarMemberOf("a/", "", '5') + TarMemberOf("a/1.jpg", "one") +
                              TarMemberOf("pipe", "", '6') + TarMemberOf("device", "", '3') +
                              TarMemberOf("comment", PaxRecord("comment", "x"), 'g') +
                              TarMemberOf("./a/2.jpg", std::string(513, 'x'), '7') +
                              TarMemberOf("odd", "data", 'Z') + TarMemberOf("/b", "") + TarEnd();
  EXPECT_THAT(FilesOf(archive), ElementsAre(Pair("a/1.jpg", "one"),
                                            Pair("a/2.jpg", std::string(513, 'x')), Pair("b", "")));
  EXPECT_THAT(FilesOf(archive + "what follows"), testing::SizeIs(3));
  EXPECT_THAT(FilesOf(TarEnd()), ElementsAre());
}

// Returns a link `name` to `target`, of the type '1' (hard) or '2' (symbolic).
std::string LinkOf(const std::string& name, const std::string& target, char type) {
  std::string member = TarMemberOf(name, "", type);
  member.replace(157, target.size(), target);
  return WithChecksum(member);
}

TEST_F(TarIndex, FollowsLinks) {
  const std::string archive =
      TarMemberOf("a/1.jpg", "one") + LinkOf("a/hard.jpg", "./a/1.jpg", '1') +
      LinkOf("./b/up.jpg", "../a/1.jpg", '2') + LinkOf("b/later.jpg", "2.jpg", '2') +
      LinkOf("b/chain.jpg", "later.jpg", '2') + LinkOf("c", "b", '2') + LinkOf("d", ".", '2') +
      LinkOf("b/gone.jpg", "3.jpg", '2') + LinkOf("b/root.jpg", "/a/1.jpg", '2') +
      LinkOf("b/out.jpg", "../../a/1.jpg", '2') + LinkOf("b/self.jpg", "self.jpg", '2') +
      TarMemberOf("b/2.jpg", "two") + LinkOf("e.jpg", "a/1.jpg", '1') +
      TarMemberOf("a/1.jpg", "new") + LinkOf("f.jpg", "a/1.jpg", '1') + TarEnd();
  EXPECT_THAT(
      FilesOf(archive),
      ElementsAre(Pair("a/1.jpg", "one"), Pair("a/hard.jpg", "one"), Pair("b/up.jpg", "new"),
                  Pair("b/later.jpg", "two"), Pair("b/chain.jpg", "two"), Pair("c", "folder b"),
                  Pair("d", "folder ."), Pair("b/gone.jpg", "nothing 3.jpg"),
                  Pair("b/root.jpg", "nothing /a/1.jpg"),
                  Pair("b/out.jpg", "nothing ../../a/1.jpg"),
                  Pair("b/self.jpg", "nothing self.jpg"), Pair("b/2.jpg", "two"),
                  Pair("e.jpg", "one"), Pair("a/1.jpg", "new"), Pair("f.jpg", "new")));
}

TEST_F(TarIndex, LongNamesOfLinks) {
  const std::string name(300, 'n');
  EXPECT_THAT(FilesOf(TarMemberOf("././@LongLink", name + '\0', 'L') + TarMemberOf(name, "1") +
                      TarMemberOf("././@LongLink", name + '\0', 'K') +
                      LinkOf("gnu", name.substr(0, 100), '1') +
                      TarMemberOf("pax", PaxRecord("linkpath", name), 'x') +
                      LinkOf("pax", "", '2') + LinkOf("plain", "gnu", '2') + TarEnd()),
              ElementsAre(Pair(name, "1"), Pair("gnu", "1"), Pair("pax", "1"), Pair("plain", "1")));
}

TEST_F(TarIndex, LongNames) {
  const std::string name = "a/" + std::string(5000, 'n');
  const std::string other = "b/\xc3\xa4 = \n";
  EXPECT_THAT(
      FilesOf(TarMemberOf("././@LongLink", name + '\0', 'L') + TarMemberOf(name, "1") +
              TarMemberOf("plain", "2") +
              TarMemberOf("pax", PaxRecord("mtime", "1.5") + PaxRecord("path", other), 'x') +
              TarMemberOf("short", "3") + TarMemberOf("plain", "4") + TarEnd()),
      ElementsAre(Pair(name, "1"), Pair("plain", "2"), Pair(other, "3"), Pair("plain", "4")));
}

TEST_F(TarIndex, ThePrefixOfUstar) {
  std::string member = TarMemberOf("1.jpg", "x");
  member.replace(345, 4, "some");
  EXPECT_THAT(FilesOf(WithChecksum(member) + TarEnd()), ElementsAre(Pair("some/1.jpg", "x")));
  // GNU archives use the bytes of the prefix field for other data.
  member.replace(257, 8, std::string_view("ustar  \0", 8));
  EXPECT_THAT(FilesOf(WithChecksum(member) + TarEnd()), ElementsAre(Pair("1.jpg", "x")));
}

TEST_F(TarIndex, ArchivesOfVersion7) {
  std::string file = TarMemberOf("1.jpg", "x", '\0');
  std::string folder = TarMemberOf("a/", "", '\0');
  for (std::string* member : {&file, &folder}) member->replace(257, 8, 8, '\0');
  EXPECT_THAT(FilesOf(WithChecksum(folder) + WithChecksum(file) + TarEnd()),
              ElementsAre(Pair("1.jpg", "x")));
}

TEST_F(TarIndex, SizesInBase256AndInRecords) {
  std::string member = TarMemberOf("1", "four");
  member.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\4", 12));
  EXPECT_THAT(FilesOf(WithChecksum(member) + TarMemberOf("2", "") + TarEnd()),
              ElementsAre(Pair("1", "four"), Pair("2", "")));
  EXPECT_THAT(FilesOf(TarMemberOf("pax", PaxRecord("size", "600"), 'x') +
                      TarMemberOf("1", std::string(513, 'x')) + TarEnd()),
              ElementsAre(Pair("1", std::string(513, 'x') + std::string(87, '\0'))));

  member.replace(124, 12, 12, '\xff');  // the number -1 in base 256
  EXPECT_THAT(ErrorOf(WithChecksum(member) + TarEnd()), HasSubstr("larger than any file"));
  member.replace(124, 12, std::string("\x80\0\0\0\0\1\0\0\0\0\0\0", 12));
  EXPECT_THAT(ErrorOf(WithChecksum(member) + TarEnd()), HasSubstr("cut short"));
}

TEST_F(TarIndex, SumsOfSignedBytes) {
  std::string member = TarMemberOf("\xe9.jpg", "x");
  member.replace(148, 8, 8, ' ');
  int sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<signed char>(member[i]);
  member.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  EXPECT_THAT(FilesOf(member + TarEnd()), ElementsAre(Pair("\xe9.jpg", "x")));
}

TEST_F(TarIndex, RefusesWhatIsNoArchive) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty file"));
  EXPECT_THAT(ErrorOf(std::string(2000, 'x')), HasSubstr("no tar archive"));
  EXPECT_THAT(ErrorOf("\x1f\x8b" + std::string(2000, 'x')), HasSubstr("compressed with gzip"));
  EXPECT_THAT(ErrorOf("\x28\xb5\x2f\xfd"), HasSubstr("compressed with zstd: decompress it"));
}

TEST_F(TarIndex, RefusesEveryCut) {
  const std::string archive = TarMemberOf("pax", PaxRecord("path", "long name"), 'x') +
                              TarMemberOf("1", "content") +
                              TarMemberOf("././@LongLink", std::string(600, 'n'), 'L') +
                              TarMemberOf("2", "") + TarMemberOf("3", std::string(1024, 'x'));
  ASSERT_THAT(FilesOf(archive + TarEnd()), testing::SizeIs(3));
  EXPECT_THAT(FilesOf(archive + std::string(512, '\0')), testing::SizeIs(3));
  for (size_t bytes = archive.size() + 511; bytes > 0; --bytes) {
    std::filesystem::resize_file(path_, bytes);
    const ReadableFile cut(path_);
    ASSERT_THAT(DataErrorOf([&] { VisitTar(cut, [](const TarMember&) {}); }),
                AllOf(HasSubstr(path_), HasSubstr(": byte "), HasSubstr("cut short")))
        << bytes;
  }
}

TEST_F(TarIndex, RefusesDamagedHeaders) {
  const std::string first = TarMemberOf("1", "content"), second = TarMemberOf("2", "content");
  for (size_t at = 0; at < 512; ++at) {
    std::string damaged = second;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    // The last two bytes of the checksum field, after its digits, are not checked.
    if (at == 154 || at == 155) continue;
    ASSERT_THAT(ErrorOf(first + damaged + TarEnd()), HasSubstr(": byte 1024: ")) << at;
  }
  std::string size = second;
  size.replace(124, 11, "0000000000x");
  EXPECT_THAT(ErrorOf(first + WithChecksum(size) + TarEnd()), HasSubstr("size is no number"));
}

TEST_F(TarIndex, RefusesDamagedRecords) {
  for (const std::string records :
       {"x", "5", "99 path=a\n", "8 path=a\n", "10 path=a\nx", "4 p\n", "0 \n", "3 \n",
        "11 size=1x\n", "11 size=-1\n", "99999999999999999999 path=a\n"}) {
    EXPECT_THAT(ErrorOf(TarMemberOf("pax", records, 'x') + TarMemberOf("1", "") + TarEnd()),
                HasSubstr("a pax record"))
        << records;
  }
  EXPECT_THAT(ErrorOf(TarMemberOf("pax", PaxRecord("path", "a"), 'x') + TarEnd()),
              HasSubstr("a member should follow"));
  EXPECT_THAT(ErrorOf(TarMemberOf("pax", PaxRecord("path", std::string("a\0b", 3)), 'x') +
                      TarMemberOf("1", "") + TarEnd()),
              HasSubstr("zero byte"));
  std::string huge = TarMemberOf("././@LongLink", "", 'L');
  huge.replace(124, 11, "77777777777");
  EXPECT_THAT(ErrorOf(WithChecksum(huge) + TarEnd()), HasSubstr("a name of 8589934591 bytes"));
}

TEST_F(TarIndex, RefusesSparseFiles) {
  EXPECT_THAT(ErrorOf(TarMemberOf("1.jpg", "x", 'S') + TarEnd()), HasSubstr("1.jpg: a sparse"));
  EXPECT_THAT(ErrorOf(TarMemberOf("pax", PaxRecord("GNU.sparse.major", "1"), 'x') +
                      TarMemberOf("1.jpg", "x") + TarEnd()),
              HasSubstr("1.jpg: a sparse"));
}

}  // namespace
}  // namespace lockstep
