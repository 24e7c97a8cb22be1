#include "prepare/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/tokenizers/testing/tiny_vocabulary.h"

namespace lockstep {
namespace {

constexpr uint16_t kEnd = 256;
using Tokens = std::vector<uint16_t>;

std::string WriteText(const std::string& text) {
  const std::string path = NewPath();
  WriteFile(path, text);
  return path;
}

// Checks the header of a token file and returns its tokens.
Tokens ReadTokens(const std::string& path) {
  const std::string bytes = ReadFile(path);
  int32_t header[256] = {};
  EXPECT_GE(bytes.size(), sizeof(header)) << path;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(header, bytes.data(), sizeof(header));
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(header[1], 1);
  Tokens tokens(header[2]);
  EXPECT_EQ(bytes.size(), sizeof(header) + 2 * tokens.size());
  std::memcpy(tokens.data(), bytes.data() + sizeof(header), 2 * tokens.size());
  return tokens;
}

Tokens Prepare(PrepareTokensOptions options) {
  options.output = NewPath() + ".bin";
  PrepareTokens(options);
  return ReadTokens(options.output);
}

std::string WriteVocabulary() {
  const TinyVocabulary tiny({{" ", "a"}, {"a", "b"}, {"ab", "ab"}, {" a", "b"}});
  const std::string folder = NewPath();
  mkdir(folder.c_str(), 0777);
  std::ofstream(folder + "/vocab.json") << tiny.json;
  std::ofstream(folder + "/merges.txt") << tiny.merges;
  return folder;
}

TEST(Tokens, StandBehindEndOfText) {
  const std::string a = WriteText("ab"), b = WriteText("c");
  EXPECT_EQ(Prepare({.files = {a, b}}), (Tokens{kEnd, 'a', 'b', kEnd, 'c'}));
  EXPECT_EQ(Prepare({.files = {WriteText("a--b--")}, .separator = "--"}),
            (Tokens{kEnd, 'a', kEnd, 'b', kEnd}));
}

TEST(Tokens, DoNotDependOnPiecesAndThreads) {
  const std::string vocabulary = WriteVocabulary();
  const std::string bits[] = {"a", "b", "ab", " ", "\n", "  ", "中", "'s", "1", "."};
  std::mt19937_64 random(1);
  for (const std::string separator : {"", "a", "\n", "aa", "\n\n", " a b", "ab\nab"}) {
    for (const std::string& vocab : {std::string("bytes"), vocabulary}) {
      std::vector<std::string> files;
      for (int i = 0; i < 3; ++i) {
        std::string text = "a";
        for (int bit = 0; bit < 400; ++bit) text += bits[random() % std::size(bits)];
        files.push_back(WriteText(text));
      }
      PrepareTokensOptions options{.files = files, .vocabulary = vocab, .separator = separator};
      const Tokens expected = Prepare(options);
      for (const int64_t piece_bytes : {1, 2, 7, 64}) {
        options.piece_bytes = piece_bytes;
        options.threads = static_cast<int>(1 + piece_bytes % 4);
        EXPECT_EQ(Prepare(options), expected) << separator << " " << piece_bytes;
      }
    }
  }
}

TEST(Tokens, AreCutIntoShards) {
  const std::string file = WriteText("abcdefg");
  const std::string output = NewPath();
  PrepareTokens({.files = {file}, .output = output + ".bin", .shard_tokens = 3});
  EXPECT_EQ(ReadTokens(output + "_000000.bin"), (Tokens{kEnd, 'a', 'b'}));
  EXPECT_EQ(ReadTokens(output + "_000001.bin"), (Tokens{'c', 'd', 'e'}));
  EXPECT_EQ(ReadTokens(output + "_000002.bin"), (Tokens{'f', 'g'}));
  EXPECT_EQ(MessageOf(ExitStatus::kUsage,
                      [&] { PrepareTokens({.files = {file}, .output = output + ".bin"}); }),
            output + "_000000.bin: is there already: delete it or name another");
}

TEST(Tokens, ForValidationAreTheLastOnes) {
  const std::string a = WriteText("abcdef"), b = WriteText("ghij");
  for (const auto& [fraction, training, validation] :
       std::vector<std::tuple<double, Tokens, Tokens>>{
           {0.2, {kEnd, 'a', 'b', 'c', 'd', 'e', 'f', kEnd, 'g', 'h'}, {'i', 'j'}},
           {0.7, {kEnd, 'a', 'b', 'c'}, {'d', 'e', 'f', kEnd, 'g', 'h', 'i', 'j'}}}) {
    const std::string output = NewPath();
    PrepareTokens({.files = {a, b}, .output = output + ".bin", .validation_fraction = fraction});
    EXPECT_EQ(ReadTokens(output + ".bin"), training);
    EXPECT_EQ(ReadTokens(output + "_validation.bin"), validation);
  }
}

TEST(Tokens, AreOfOneVocabulary) {
  const std::string vocabulary = WriteVocabulary();
  const PrepareTokensOptions options{
      .files = {WriteText("\xff")}, .output = NewPath(), .vocabulary = vocabulary};
  EXPECT_THAT(DataErrorOf([&] { PrepareTokens(options); }), testing::HasSubstr("not UTF-8"));
  std::ofstream(vocabulary + "/merges.txt") << "a b\n";
  const std::string name = "--vocab " + vocabulary + " (hash ";
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { PrepareTokens(options); }),
              testing::AllOf(testing::HasSubstr("was begun with " + name),
                             testing::HasSubstr("and now it is " + name)));
}

TEST(Tokens, RefusesOutputs) {
  for (const std::string name : {"", "dir/", ".", "dir/.."}) {
    EXPECT_EQ(MessageOf(ExitStatus::kUsage,
                        [&] { PrepareTokens({.files = {"/nowhere"}, .output = name}); }),
              "--output \"" + name + "\": names no file that can be made");
  }
}

TEST(Tokens, NamesBadUtf8) {
  const std::string file = WriteText("a good begin\nand then \xff");
  EXPECT_EQ(DataErrorOf([&] {
              Prepare({.files = {file}, .vocabulary = WriteVocabulary(), .piece_bytes = 4});
            }),
            file + ": byte 22: not UTF-8");
}

TEST(Tokens, RefusesTextWithoutWhiteSpace) {
  const std::string file = WriteText(std::string(6 << 20, 'a'));
  EXPECT_EQ(DataErrorOf([&] { Prepare({.files = {file}, .vocabulary = WriteVocabulary()}); }),
            file +
                ": no white space behind a word in 4194304 bytes from byte 1048576 on: is it a "
                "text?");
}

TEST(Tokens, RefusesFiles) {
  EXPECT_EQ(DataErrorOf([] { Prepare({.files = {"/nowhere"}}); }),
            "/nowhere: cannot be opened: No such file or directory");
  EXPECT_EQ(DataErrorOf([] { Prepare({.files = {"/"}}); }), "/: not a regular file");
  const std::string empty = WriteText("");
  EXPECT_EQ(DataErrorOf([&] { Prepare({.files = {empty}}); }), empty + ": the file is empty");
  EXPECT_EQ(MessageOf(ExitStatus::kUsage,
                      [] { Prepare({.files = {WriteText("a")}, .vocabulary = "byte"}); }),
            "--vocab byte: neither \"bytes\" nor a folder with a vocabulary");
}

}  // namespace
}  // namespace lockstep
