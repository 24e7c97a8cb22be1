#include "data/tokenizers/byte_pair_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/testing/message_of.h"
#include "data/tokenizers/testing/tiny_vocabulary.h"

namespace lockstep {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

BytePairVocabulary Parse(const TinyVocabulary& tiny) {
  return {tiny.json, "vocab.json", tiny.merges, "merges.txt"};
}

std::vector<uint16_t> Encode(BytePairEncoder& encoder, std::string_view text) {
  std::vector<uint16_t> tokens;
  encoder.Encode(text, tokens);
  return tokens;
}

std::vector<std::string> TextsOf(const TinyVocabulary& tiny, const std::vector<uint16_t>& tokens) {
  std::vector<std::string> texts;
  for (const uint16_t token : tokens) texts.push_back(tiny.texts[token]);
  return texts;
}

// Returns the texts of a word's tokens by the definition: as long as the word has a pair with a merge, applies the
// merge with the lowest rank, at the leftmost place where its pair occurs.
std::vector<std::string> MergedByDefinition(const Merges& merges, const std::string& word) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  for (;;) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
      const size_t rank = found - merges.begin();
      if (rank >= best) continue;
      best = rank;
      place = i;
    }
    if (best == merges.size()) return parts;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<int64_t>(place) + 1);
  }
}

TEST(BytePairEncoder, MergesByRankAndPlace) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    Merges merges;
    std::vector<std::string> known{"a", "b", "c"};
    for (int i = 0; i < 12; ++i) {
      std::pair merge(known[random() % known.size()], known[random() % known.size()]);
      if (merge.first.size() + merge.second.size() > 8) continue;
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      known.push_back(merge.first + merge.second);
      merges.push_back(std::move(merge));
    }
    const TinyVocabulary tiny(merges);
    BytePairEncoder encoder(std::make_shared<BytePairVocabulary>(Parse(tiny)));
    for (int i = 0; i < 100; ++i) {
      std::string word;
      for (uint64_t bytes = 1 + random() % 40; bytes > 0; --bytes) word += "abc"[random() % 3];
      const auto expected = MergedByDefinition(merges, word);
      EXPECT_EQ(TextsOf(tiny, Encode(encoder, word)), expected) << word;
      EXPECT_EQ(TextsOf(tiny, Encode(encoder, word)), expected) << word << " again";
    }
  }
}

TEST(BytePairEncoder, TellsWordsApart) {
  const TinyVocabulary tiny({{"a", "b"}, {"ab", "c"}});
  BytePairEncoder encoder(std::make_shared<BytePairVocabulary>(Parse(tiny)));
  // Words of up to 15 bytes are cached, so the words of this test have 0 to 22 bytes. The words of the second loop
  // consist of zero bytes, and differ only in their length.
  for (int length = 0; length < 20; ++length) {
    for (const std::string tail : {"", "c", "abc"}) {
      const std::string word = std::string(length, 'x') + tail;
      std::string all;
      for (const std::string& text : TextsOf(tiny, Encode(encoder, word))) all += text;
      EXPECT_EQ(all, word);
    }
  }
  for (int zeros = 1; zeros < 20; ++zeros) {
    EXPECT_EQ(Encode(encoder, std::string(zeros, '\0')), std::vector<uint16_t>(zeros, 0));
  }
}

TEST(BytePairEncoder, MergesALongWord) {
  Merges merges;
  std::string part = "a";
  for (int i = 0; i < 6; ++i, part += part) merges.emplace_back(part, part);
  const TinyVocabulary tiny(merges);
  BytePairEncoder encoder(std::make_shared<BytePairVocabulary>(Parse(tiny)));
  const std::vector<uint16_t> tokens = Encode(encoder, std::string((1 << 20) + 33, 'a'));
  ASSERT_EQ(tokens.size(), (1 << 14) + 2);
  EXPECT_EQ(tiny.texts[tokens.front()].size(), 64);
  EXPECT_EQ(tiny.texts[tokens[tokens.size() - 2]].size(), 32);
  EXPECT_EQ(tiny.texts[tokens.back()], "a");
}

TEST(BytePairEncoder, RefusesBadUtf8) {
  BytePairEncoder encoder(std::make_shared<BytePairVocabulary>(Parse(TinyVocabulary({}))));
  for (const auto& [text, position] : std::vector<std::pair<std::string, size_t>>{
           {"\xff", 0}, {"ab \xc3", 3}, {"ab\xc3 cd", 2}, {"\xe2\x82", 0}, {"x\xed\xa0\x80", 1}}) {
    std::vector<uint16_t> tokens;
    try {
      encoder.Encode(text, tokens);
      ADD_FAILURE() << text;
    } catch (const BadText& bad) {
      EXPECT_EQ(bad.position, position);
    }
  }
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t found = text.find(from);
  EXPECT_NE(found, std::string::npos) << from;
  return text.replace(found, from.size(), to);
}

TEST(Vocabulary, RefusesWhatIsNone) {
  const TinyVocabulary good({{"a", "b"}, {"ab", "c"}});
  const auto error = [](const std::string& json, const std::string& merges) {
    return DataErrorOf([&] { BytePairVocabulary(json, "vocab.json", merges, "merges.txt"); });
  };
  EXPECT_THAT(error("{", good.merges), testing::StartsWith("vocab.json: no JSON: "));
  EXPECT_EQ(error("[1]", good.merges), "vocab.json: no object of tokens and numbers");
  EXPECT_EQ(error(Replaced(good.json, "\"abc\":258", "\"abc\":65536"), good.merges),
            "vocab.json: token abc is 65536: tokens are whole numbers below 65536");
  EXPECT_EQ(error(Replaced(good.json, "\"abc\":258", "\"abc\":-1"), good.merges),
            "vocab.json: token abc is -1: tokens are whole numbers below 65536");
  EXPECT_EQ(error(Replaced(good.json, "\"abc\":258", "\"abc\":\"x\""), good.merges),
            "vocab.json: token abc is \"x\": tokens are whole numbers below 65536");
  EXPECT_THAT(error(Replaced(good.json, "\"abc\":258", "\"abc\":257"), good.merges),
              testing::StartsWith("vocab.json: two tokens are 257, one of them abc"));
  EXPECT_EQ(error(Replaced(good.json, "<|endoftext|>", "<|end|>"), good.merges),
            "vocab.json: no token <|endoftext|> in vocab.json");
  EXPECT_EQ(error(Replaced(good.json, "\"A\":65", "\"AAA\":65"), good.merges),
            "vocab.json: byte 65: no token A in vocab.json");
  EXPECT_EQ(error(good.json, good.merges + "a z\n"), "merges.txt:4: no token az in vocab.json");
  EXPECT_EQ(error(good.json, good.merges + "\na b c\n"),
            "merges.txt:5: no pair of tokens with a space between them: \"a b c\"");
  EXPECT_EQ(error(good.json, "ab"),
            "merges.txt:1: no pair of tokens with a space between them: \"ab\"");
}

TEST(Vocabulary, RefusesAFolderWithoutOne) {
  EXPECT_THAT(DataErrorOf([] { BytePairVocabulary::Read("/nowhere"); }),
              testing::StartsWith("/nowhere: no encoder.json or vocab.json in it"));
}

TEST(Vocabulary, MayEndItsLinesAsWindowsDoes) {
  TinyVocabulary tiny(Merges{{"a", "b"}});
  tiny.merges = "#version: 0.2\r\na b\r\n";
  EXPECT_NE(Parse(tiny).Find('a', 'b'), nullptr);
  EXPECT_EQ(Parse(tiny).Find('b', 'a'), nullptr);
}

}  // namespace
}  // namespace lockstep
