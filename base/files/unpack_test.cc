#include "base/files/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "base/cores.h"
#include "base/error.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Gzipped(const std::string& text) {
  std::string packed(compressBound(text.size()) + 100, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::string ErrorOf(const std::string& packed, size_t most) {
  return MessageOf(ExitStatus::kData, [&] { UnpackGzip("f.gz", packed, most); });
}

TEST(Unpack, ReadsMembersOneAfterTheOther) {
  const std::string text(3 * UnpackedText::kPiece + 5, 'x');
  const std::string packed = Gzipped(text) + Gzipped("") + Gzipped("end") + std::string(9, '\0');
  EXPECT_TRUE(IsGzip(packed));
  EXPECT_EQ(UnpackGzip("f.gz", packed, text.size() + 3), text + "end");
  EXPECT_EQ(UnpackGzip("f.gz", Gzipped(""), 0), "");
}

TEST(Unpack, RefusesWhatIsTooLong) {
  // The stated length, the last four bytes, may lie in both directions.
  const std::string text(5 * UnpackedText::kPiece, '0');
  for (const std::string& end : {std::string(4, '\0'), std::string(4, '\xff')}) {
    std::string packed = Gzipped(text);
    packed.replace(packed.size() - 4, 4, end);
    EXPECT_THAT(ErrorOf(packed, 3 * UnpackedText::kPiece),
                HasSubstr("f.gz: unpacked, it has more than the 3 MiB that compressed files"));
  }
  std::string members;
  for (int i = 0; i < 64; ++i) members += Gzipped(text);
  EXPECT_THAT(ErrorOf(members, 100 * UnpackedText::kPiece), HasSubstr("more than the 100 MiB"));
  EXPECT_EQ(UnpackGzip("f.gz", Gzipped(text), text.size()), text);
}

TEST(Unpack, RefusesWhatIsDamaged) {
  const std::string packed = Gzipped(std::string(100, 'x') + "abc");
  EXPECT_THAT(ErrorOf(packed.substr(0, packed.size() - 1), 1000), HasSubstr("is cut short"));
  EXPECT_THAT(ErrorOf(packed + "more", 1000), HasSubstr("has something behind its end"));
  std::string damaged = packed;
  damaged[packed.size() - 5] ^= 1;  // the checksum
  EXPECT_THAT(ErrorOf(damaged, 1000), HasSubstr("is damaged"));
}

TEST(Unpack, TheLimitFollowsFromTheFilesSize) {
  constexpr size_t kMiB = size_t{1} << 20;
  const double half = BytesOfMemory() / 2;
  if (half < 2048.0 * kMiB) GTEST_SKIP() << "half of the memory is less than these limits";
  for (const size_t small : {size_t{0}, size_t{512} << 10, 2 * kMiB}) {
    EXPECT_EQ(MostUnpackedBytes(small), 256 * kMiB);
  }
  EXPECT_EQ(MostUnpackedBytes(4 * kMiB), 512 * kMiB);
  for (const size_t more : {10 * kMiB, 26 * kMiB, 64 * kMiB}) {
    EXPECT_EQ(MostUnpackedBytes(more), 1280 * kMiB);
  }
  EXPECT_EQ(MostUnpackedBytes(80 * kMiB), 1600 * kMiB);
  EXPECT_LE(static_cast<double>(MostUnpackedBytes(SIZE_MAX)), half);
}

}  // namespace
}  // namespace lockstep
