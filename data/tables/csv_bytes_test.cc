#include "data/tables/csv_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <minizip/zip.h>
#include <zlib.h>

#include <utility>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/tables/csv_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::string kText = "a,b,y\n1,2,0\n3,4,1\n";

std::string Gzipped(const std::string& text) {
  const std::string path = NewPath();
  const gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, text.data(), text.size()), static_cast<int>(text.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  return ReadFile(path);
}

// Returns a zip archive that holds `files`, which are pairs of name and text.
std::string Zipped(const std::vector<std::pair<std::string, std::string>>& files,
                   int method = Z_DEFLATED, const char* password = nullptr) {
  const std::string path = NewPath();
  const zipFile archive = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  for (const auto& [name, text] : files) {
    const uLong checksum = crc32(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
    EXPECT_EQ(zipOpenNewFileInZip3(archive, name.c_str(), nullptr, nullptr, 0, nullptr, 0, nullptr,
                                   method, Z_BEST_COMPRESSION, 0, -MAX_WBITS, DEF_MEM_LEVEL,
                                   Z_DEFAULT_STRATEGY, password, checksum),
              ZIP_OK);
    EXPECT_EQ(zipWriteInFileInZip(archive, text.data(), text.size()), ZIP_OK);
    EXPECT_EQ(zipCloseFileInZip(archive), ZIP_OK);
  }
  EXPECT_EQ(zipClose(archive, nullptr), ZIP_OK);
  return ReadFile(path);
}

std::string TextOf(const std::string& name, const std::string& bytes) {
  return std::string(CsvBytes(WriteTestFile(name, bytes)).text());
}

std::string ErrorOf(const std::string& name, const std::string& bytes) {
  return DataErrorOf([&] { TextOf(name, bytes); });
}

TEST(CsvBytes, ReadsATextAsItIs) {
  EXPECT_EQ(TextOf("t.csv", kText), kText);
  EXPECT_EQ(TextOf("t.csv", "P"), "P");
}

TEST(CsvBytes, UnpacksGzip) {
  EXPECT_EQ(TextOf("t.csv.gz", Gzipped(kText)), kText);
  EXPECT_EQ(TextOf("t.csv", Gzipped(kText)), kText);
  // This file has two members, and zeros after them as padding.
  EXPECT_EQ(TextOf("t.gz", Gzipped(kText) + Gzipped("5,6,0\n") + std::string(512, '\0')),
            kText + "5,6,0\n");
  // This text has 3 MiB, so that it is unpacked in several pieces (kPiece is 1 MiB).
  std::string text;
  for (int i = 0; text.size() < (3U << 20); ++i) text += std::to_string(i) + ",0\n";
  EXPECT_EQ(TextOf("t.csv.gz", Gzipped(text)), text);
  EXPECT_EQ(TextOf("t.csv.zip", Zipped({{"t.csv", text}})), text);
}

TEST(CsvBytes, UnpacksAZipArchiveOfOneFile) {
  EXPECT_EQ(TextOf("t.csv.zip", Zipped({{"any.name", kText}})), kText);
  EXPECT_EQ(TextOf("t.csv", Zipped({{"t.csv", kText}}, 0)), kText);
  EXPECT_EQ(TextOf("t.zip", Zipped({{"f/", ""}, {"f/t.csv", kText}, {"__MACOSX/f/._t.csv", "x"}})),
            kText);
  EXPECT_EQ(TextOf("t.zip", Zipped({{".DS_Store", "x"}, {"t.csv", kText}, {"f/._t.csv", "x"}})),
            kText);
}

TEST(CsvBytes, RefusesAFileThatIsCutShort) {
  const std::string gzip = Gzipped(kText);
  const std::string zip = Zipped({{"t.csv", kText}});
  for (const size_t bytes : {size_t{2}, size_t{9}, gzip.size() - 1, gzip.size() - 8}) {
    EXPECT_THAT(ErrorOf("t.csv.gz", gzip.substr(0, bytes)),
                HasSubstr("t.csv.gz: the compressed file is cut short: copy it or download it"));
  }
  EXPECT_THAT(ErrorOf("t.csv.zip", zip.substr(0, zip.size() - 30)),
              HasSubstr("t.csv.zip: the compressed file is cut short"));
}

TEST(CsvBytes, RefusesADamagedFile) {
  std::string gzip = Gzipped(kText);
  gzip[gzip.size() - 6] ^= 1;  // a byte of the checksum
  EXPECT_THAT(ErrorOf("t.csv.gz", gzip), HasSubstr("t.csv.gz: the compressed file is damaged"));
  EXPECT_THAT(ErrorOf("t.csv.gz", Gzipped(kText) + "x"), HasSubstr("has something behind its end"));
  std::string zip = Zipped({{"t.csv", kText}}, 0);
  zip[zip.find("1,2,0")] ^= 1;
  EXPECT_THAT(ErrorOf("t.zip", zip), HasSubstr("t.zip: the compressed file is damaged"));
}

TEST(CsvBytes, RefusesAFileThatIsNotWhatItsNameSays) {
  EXPECT_THAT(ErrorOf("t.csv.gz", kText),
              HasSubstr("t.csv.gz: the file is not compressed, although its name says so"));
  EXPECT_THAT(ErrorOf("t.zip", "<html>"), HasSubstr("t.zip: the file is not compressed"));
  EXPECT_THAT(ErrorOf("t.CSV.GZ", kText), HasSubstr("t.CSV.GZ: the file is not compressed"));
}

TEST(CsvBytes, KnowsATableByWhatIsInIt) {
  const auto holds = [](const std::string& bytes) {
    return HoldsTable(WriteTestFile("packed", bytes));
  };
  EXPECT_TRUE(holds(Zipped({{"train.CSV", kText}, {".DS_Store", "x"}})));
  EXPECT_TRUE(holds(Gzipped(kText)));
  EXPECT_FALSE(holds(Zipped({{"cat.png", "x"}})));
  EXPECT_FALSE(holds(Zipped({{"a.csv", kText}, {"b.csv", kText}})));
  EXPECT_FALSE(holds(Gzipped(std::string(3, '\0') + "x")));
  EXPECT_FALSE(holds(kText));
  EXPECT_FALSE(holds("PK\x03\x04..."));
  EXPECT_FALSE(HoldsTable("/nowhere"));
}

TEST(CsvBytes, RefusesAnArchiveOfOtherThanOneFile) {
  EXPECT_THAT(ErrorOf("t.zip", Zipped({{"train.csv", kText}, {"test.csv", kText}})),
              HasSubstr("t.zip: the zip archive holds 2 files, such as train.csv and test.csv: "
                        "unzip it, and give the file to read"));
  EXPECT_THAT(ErrorOf("t.zip", Zipped({})), HasSubstr("holds no file"));
  EXPECT_THAT(ErrorOf("t.xlsx", Zipped({{"[Content_Types].xml", "x"}, {"xl/a.xml", "x"}})),
              HasSubstr("t.xlsx: the file is a spreadsheet: save the sheet as CSV"));
}

TEST(CsvBytes, RefusesAnArchiveThatItCannotUnpack) {
  EXPECT_THAT(ErrorOf("t.zip", Zipped({{"t.csv", kText}}, Z_DEFLATED, "secret")),
              HasSubstr("t.zip: the zip archive is encrypted: unzip it first"));
  std::string zip = Zipped({{"t.csv", kText}});
  zip[8] = 12;  // method 12 is bzip2
  zip[zip.find("PK\x01\x02") + 10] = 12;
  EXPECT_THAT(ErrorOf("t.zip", zip), HasSubstr("compressed by method 12, and deflate is read"));
}

TEST(CsvBytes, RefusesATextBeyondTheLimit) {
  const std::string zeros(5U << 20, '0');
  const std::string gzip = WriteTestFile("bomb.csv.gz", Gzipped(zeros));
  const std::string zip = WriteTestFile("bomb.csv.zip", Zipped({{"t.csv", zeros}}));
  for (const std::string& path : {gzip, zip}) {
    EXPECT_THAT(DataErrorOf([&] { CsvBytes(path, size_t{3} << 20); }),
                HasSubstr(path + ": unpacked, it has more than the 3 MiB that compressed files of "
                                 "its size may take: unpack it"));
    EXPECT_EQ(CsvBytes(path, zeros.size()).text(), zeros);
  }
}

TEST(CsvBytes, TheLimitIsThatOfAllFilesOfASet) {
  std::string text;
  for (int i = 0; text.size() < (3U << 20); ++i) text += std::to_string(i) + ",0\n";
  CsvOptions options{.files = {WriteTestFile("a.csv.gz", Gzipped(text))}};
  CsvFiles(options, size_t{4} << 20);
  options.files.push_back(WriteTestFile("b.csv.gz", Gzipped(text)));
  EXPECT_THAT(DataErrorOf([&] { CsvFiles(options, size_t{4} << 20); }),
              HasSubstr("b.csv.gz: unpacked, it has more than the 1 MiB that"));
  CsvFiles(options, size_t{8} << 20);
}

}  // namespace
}  // namespace lockstep
