#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/message_of.h"
#include "base/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<float> InputOf(const Dataset& dataset, int64_t index, int64_t* label) {
  std::vector<float> input(dataset.spec().bytes() / sizeof(float));
  dataset.Read(index, 0, reinterpret_cast<std::byte*>(input.data()),
               reinterpret_cast<std::byte*>(label));
  return input;
}

int64_t ReadImage(const Dataset& dataset, int64_t index, std::vector<std::byte>& image) {
  int64_t label = -2;
  dataset.Read(index, 0, image.data(), reinterpret_cast<std::byte*>(&label));
  return label;
}

std::string Idx(std::vector<unsigned char> header, size_t items, unsigned char value = 1) {
  return std::string(header.begin(), header.end()) + std::string(items, static_cast<char>(value));
}

const std::vector<unsigned char> kThreeImagesOf2x2{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
const std::vector<unsigned char> kThreeLabels{0, 0, 8, 1, 0, 0, 0, 3};

TEST(Mnist, ReadsImagesAndLabels) {
  std::string images = Idx(kThreeImagesOf2x2, 12);
  images[16 + 5] = static_cast<char>(200);
  const auto dataset = ReadMnist({.images = WriteTestFile("i", images),
                                  .labels = WriteTestFile("l", Idx(kThreeLabels, 3, 9))});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().shape, (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(dataset->spec().dtype, at::kByte);
  std::vector<std::byte> image(4);
  EXPECT_EQ(ReadImage(*dataset, 1, image), 9);
  EXPECT_EQ(image[1], std::byte{200});
  EXPECT_EQ(ReadImage(*ReadMnist({.images = WriteTestFile("i", images)}), 0, image),
            Dataset::kNoLabel);
}

TEST(Mnist, RefusesATruncatedFile) {
  for (size_t bytes : {0u, 3u, 15u, 16u, 27u, 29u}) {
    const std::string path = WriteTestFile("t", Idx(kThreeImagesOf2x2, 20).substr(0, bytes));
    DataErrorOf([&] { ReadMnist({.images = path}); });
  }
  const std::string huge(16, '\xff');
  EXPECT_THAT(
      DataErrorOf([&] {
        ReadMnist({.images = WriteTestFile("t", std::string("\0\0\x08\x03", 4) + huge.substr(4))});
      }),
      HasSubstr("truncated"));
}

TEST(Mnist, RefusesAnotherKindOfFile) {
  EXPECT_THAT(DataErrorOf([] { ReadMnist({.images = WriteTestFile("k", Idx(kThreeLabels, 30))}); }),
              HasSubstr("exchanged"));
  EXPECT_THAT(DataErrorOf([] {
                ReadMnist({.images = WriteTestFile("k", "\x1f\x8b" + std::string(99, 'x'))});
              }),
              HasSubstr("gunzip"));
}

TEST(Mnist, RefusesLabelsThatDoNotMatch) {
  const std::string images = WriteTestFile("i", Idx(kThreeImagesOf2x2, 12));
  const std::string two = WriteTestFile("l", Idx({0, 0, 8, 1, 0, 0, 0, 2}, 2));
  EXPECT_THAT(DataErrorOf([&] { ReadMnist({.images = images, .labels = two}); }),
              HasSubstr("2 labels for the 3 images"));
}

TEST(Mnist, RefusesALabelOutOfRange) {
  const std::string images = WriteTestFile("i", Idx(kThreeImagesOf2x2, 12));
  const std::string labels = WriteTestFile("l", Idx(kThreeLabels, 3, 10));
  EXPECT_THAT(DataErrorOf([&] { ReadMnist({.images = images, .labels = labels}); }),
              HasSubstr("record 0: label 10 is out of range"));
}

TEST(Cifar10, ReadsRecords) {
  std::string batch;
  for (char label : {3, 9}) batch += label + std::string(3072, static_cast<char>(label * 2));
  const auto dataset =
      ReadCifar10({.files = {WriteTestFile("c1", batch), WriteTestFile("c2", batch)}});
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->spec().shape, (std::vector<int64_t>{3, 32, 32}));
  std::vector<std::byte> image(3072);
  EXPECT_EQ(ReadImage(*dataset, 3, image), 9);
  EXPECT_EQ(image.front(), std::byte{18});
  EXPECT_EQ(image.back(), std::byte{18});
}

TEST(Cifar10, RefusesATruncatedFileAndALabelOutOfRange) {
  EXPECT_THAT(
      DataErrorOf([] { ReadCifar10({.files = {WriteTestFile("c", std::string(3072, 'x'))}}); }),
      HasSubstr("3072 bytes"));
  EXPECT_THAT(
      DataErrorOf([] { ReadCifar10({.files = {WriteTestFile("c", std::string(3073, '\x0a'))}}); }),
      HasSubstr("label 10 is out of range"));
}

TEST(SplitBySeed, IsDisjointAndCompleteAndRoundsUp) {
  const Split split = SplitBySeed(1797, 0.2, 1);
  EXPECT_EQ(split.validation.size(), 360u);
  std::set<int64_t> all(split.train.begin(), split.train.end());
  all.insert(split.validation.begin(), split.validation.end());
  EXPECT_EQ(all.size(), 1797u);
  EXPECT_EQ(*all.rbegin(), 1796);
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
  EXPECT_NE(split.validation, SplitBySeed(1797, 0.2, 2).validation);
  EXPECT_EQ(split.validation, SplitBySeed(1797, 0.2, 1).validation);
}

TEST(SplitBySeed, RefusesAnEmptyPart) {
  EXPECT_THROW(SplitBySeed(1, 0.5, 1), Error);
  EXPECT_THROW(SplitBySeed(10, 0, 1), Error);
  EXPECT_THROW(SplitBySeed(10, 1, 1), Error);
}

TEST(Subset, ReadsTheChosenSamples) {
  const auto whole = MakeSynthetic({.spec = {.shape = {1}, .classes = 9}, .samples = 3});
  const Subset subset(whole, {2, 0});
  EXPECT_EQ(subset.size(), 2);
  int64_t label = -1, expected = -1;
  for (const auto& [index, in_whole] : {std::pair{0, 2}, std::pair{1, 0}}) {
    EXPECT_EQ(InputOf(subset, index, &label), InputOf(*whole, in_whole, &expected));
    EXPECT_EQ(label, expected);
    EXPECT_EQ(subset.NumberInFiles(index), in_whole);
  }
}

TEST(Subset, ReadsSomeOfTheChosenSamples) {
  const auto whole = MakeSynthetic({.spec = {.shape = {1}, .classes = 9}, .samples = 30});
  const Subset subset(whole, {20, 0, 7, 7});
  const std::vector<int64_t> indices = {3, 0, 1};
  std::vector<float> inputs(indices.size());
  std::vector<int64_t> labels(indices.size());
  subset.ReadSome(indices, /*epoch=*/0, reinterpret_cast<std::byte*>(inputs.data()),
                  reinterpret_cast<std::byte*>(labels.data()));
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t label = -1;
    EXPECT_EQ(InputOf(subset, indices[i], &label), std::vector{inputs[i]});
    EXPECT_EQ(labels[i], label);
  }
}

// `tokens` as 16-bit numbers, behind llm.c's header where `header`.
std::string TokenBytes(const std::vector<uint16_t>& tokens, bool header) {
  std::string bytes;
  if (header) {
    std::vector<int32_t> numbers(256);
    numbers[0] = 20240520;
    numbers[1] = 1;
    numbers[2] = static_cast<int32_t>(tokens.size());
    bytes.assign(reinterpret_cast<const char*>(numbers.data()), 1024);
  }
  return bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

std::vector<int64_t> TokensOf(const Dataset& dataset, int64_t index) {
  std::vector<int64_t> both((dataset.spec().bytes() + dataset.spec().target_bytes()) / 8);
  auto* input = reinterpret_cast<std::byte*>(both.data());
  dataset.Read(index, 0, input, input + dataset.spec().bytes());
  return both;
}

// A .npy file of version 1 with this dictionary before the numbers.
std::string NpyText(const std::string& dictionary, const std::string& numbers) {
  const std::string header = dictionary + "\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header +
         numbers;
}

template <typename Number>
std::string NpyOf(const std::string& descr, const std::string& shape,
                  const std::vector<Number>& numbers) {
  return NpyText("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }",
                 {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)});
}

TEST(Npy, ReadsNumbersAndLabels) {
  const auto dataset =
      MapNpy({.inputs = WriteTestFile("x.npy", NpyOf<double>("<f8", "3, 2", {1, 2.5, -3, 4, 5, 6})),
              .targets = WriteTestFile("y.npy", NpyOf<int16_t>("<i2", "3,", {0, 4, 2}))});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().shape, std::vector<int64_t>{2});
  EXPECT_EQ(dataset->spec().classes, 5);
  int64_t label = 0;
  EXPECT_EQ(InputOf(*dataset, 1, &label), (std::vector<float>{-3, 4}));
  EXPECT_EQ(label, 4);
  const auto unlabelled = MapNpy({.inputs = testing::TempDir() + "/x.npy", .classes = 5});
  InputOf(*unlabelled, 2, &label);
  EXPECT_EQ(label, Dataset::kNoLabel);
}

TEST(Npy, PixelsStayBytesInTheirOrder) {
  std::vector<uint8_t> bytes(2 * 4 * 5 * 3);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const auto& [shape, expected, channels_last] :
       {std::tuple("2, 3, 4, 5", std::vector<int64_t>{3, 4, 5}, false),
        std::tuple("2, 4, 5, 3", std::vector<int64_t>{3, 4, 5}, true),
        std::tuple("2, 12, 5", std::vector<int64_t>{1, 12, 5}, false),
        std::tuple("2, 1, 12, 5", std::vector<int64_t>{1, 12, 5}, false),
        std::tuple("2, 12, 5, 1", std::vector<int64_t>{1, 12, 5}, false)}) {
    const auto dataset = MapNpy(
        {.inputs = WriteTestFile("p.npy", NpyOf<uint8_t>("|u1", shape, bytes)), .pixels = true});
    EXPECT_EQ(dataset->spec().shape, expected);
    EXPECT_EQ(dataset->spec().channels_last, channels_last);
    std::vector<std::byte> image(60);
    ReadImage(*dataset, 1, image);
    EXPECT_EQ(std::memcmp(image.data(), bytes.data() + 60, 60), 0);
  }
  EXPECT_THAT(DataErrorOf([] {
                MapNpy({.inputs = WriteTestFile("p.npy", NpyOf<float>("<f4", "1, 2, 1", {1, 2})),
                        .pixels = true});
              }),
              HasSubstr("PIXELS are unsigned bytes of 3 or 4 dimensions, not [1, 2, 1]"));
}

TEST(Npy, RefusesWhatItCannotRead) {
  const auto error_of = [](const std::string& content) {
    return DataErrorOf([&] { MapNpy({.inputs = WriteTestFile("bad.npy", content)}); });
  };
  const std::vector<float> four{1, 2, 3, 4};
  const std::string good = NpyOf<float>("<f4", "2, 2", four);
  for (size_t bytes = 1; bytes < good.size(); ++bytes) {
    EXPECT_THAT(error_of(good.substr(0, bytes)), HasSubstr("bad.npy: "));
  }
  EXPECT_THAT(error_of(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of(good + "x"),
              HasSubstr("17 bytes of numbers where the header says 16: there"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("it is cut short"));
  EXPECT_THAT(error_of("PK\x03\x04 an archive"), HasSubstr("no .npy file: take the arrays out"));
  EXPECT_THAT(error_of(NpyOf<float>(">f4", "2, 2", four)), HasSubstr("numbers of type >f4"));
  EXPECT_THAT(error_of(NpyOf<float>("<c8", "2", four)), HasSubstr("numbers of type <c8"));
  EXPECT_THAT(
      error_of(NpyText("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")),
      HasSubstr("numbers of type several fields"));
  EXPECT_THAT(error_of(NpyText("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", "1234")),
              HasSubstr("column by column"));
  EXPECT_THAT(error_of(NpyText("{'descr': '<f4', 'shape': (1, 1)}", "1234")),
              HasSubstr("no 'fortran_order'"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "99999999999, 99999999999", four)),
              HasSubstr("shape is larger than any file"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "99999999999999999999999, 1", four)),
              HasSubstr("shape is larger than any file"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "", {1})), HasSubstr("one number is no data set"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "0, 3", {})), HasSubstr("the array is empty"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "4,", four)), HasSubstr("its first dimension counts"));
}

TEST(Npy, RefusesTargetsThatDoNotFit) {
  const std::string inputs = WriteTestFile("x.npy", NpyOf<float>("<f4", "2, 2", {1, 2, 3, 4}));
  const auto error_of = [&](const std::string& targets, Task task, int64_t classes) {
    return DataErrorOf([&] {
      MapNpy({.inputs = inputs,
              .targets = WriteTestFile("y.npy", targets),
              .task = task,
              .classes = classes});
    });
  };
  constexpr Task kClasses = Task::kClassification;
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "3,", {0, 1, 2}), kClasses, 0),
              HasSubstr("3 targets for the 2 inputs of"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2,", {0, 1}), kClasses, 0),
              HasSubstr("labels are one integer for each sample"));
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "2,", {0, 3}), kClasses, 3),
              HasSubstr("sample 1: label 3 is out of range: data.classes is 3"));
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "2,", {0, -1}), kClasses, 0),
              HasSubstr("sample 1: label -1 is out of range"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2, 2", {0, 1, 2, 1}), Task::kMultiLabel, 0),
              HasSubstr("sample 1: 2 is no 0 or 1"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2,", {0, NAN}), Task::kRegression, 0),
              HasSubstr("sample 1: nan is no finite number"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2,", {0, 1}), Task::kRegression, 2),
              HasSubstr("1 numbers for each sample where data.classes is 2"));
}

TEST(Tokens, ReadsBothFormats) {
  const std::string plain = WriteTestFile("plain.bin", TokenBytes({0, 1, 2, 3, 4, 5, 6}, false));
  const std::string headed = WriteTestFile("headed.bin", TokenBytes({7, 65535, 9}, true));
  const auto dataset = MapTokens({.files = {plain, headed}, .length = 2, .classes = 65536});
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(TokensOf(*dataset, 0), (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(TokensOf(*dataset, 2), (std::vector<int64_t>{4, 5, 5, 6}));
  EXPECT_EQ(TokensOf(*dataset, 3), (std::vector<int64_t>{7, 65535, 65535, 9}));
}

TEST(Tokens, RefusesWhatIsNoTokenFile) {
  const auto error = [](const std::string& bytes) {
    return DataErrorOf([&] { MapTokens({.files = {WriteTestFile("t.bin", bytes)}, .length = 2}); });
  };
  EXPECT_THAT(error(""), HasSubstr("t.bin: the file is empty"));
  EXPECT_THAT(error("abcdefg"), HasSubstr("7 bytes of tokens where an even number"));
  EXPECT_THAT(error(TokenBytes({1, 2, 3}, true) + "ab"),
              HasSubstr("8 bytes of tokens where 6 are"));
  EXPECT_THAT(error(TokenBytes({1, 2}, false)), HasSubstr("2 tokens are too few"));
  EXPECT_THAT(DataErrorOf([] { MapTokens({.files = {"/none.bin"}}); }), HasSubstr("No such file"));
}

TEST(Tokens, RefusesATokenOutOfRange) {
  const std::string path = WriteTestFile("t.bin", TokenBytes({1, 2, 3, 50, 4}, false));
  const auto dataset = MapTokens({.files = {path}, .length = 2, .classes = 50});
  EXPECT_THAT(DataErrorOf([&] { TokensOf(*dataset, 1); }), HasSubstr("t.bin: token 3 is 50"));
}

TEST(Synthetic, DrawsEachSampleFromItsNumber) {
  const SampleSpec spec{.shape = {2, 3}, .classes = 4};
  const auto dataset = MakeSynthetic({.spec = spec, .samples = 100});
  int64_t label = -1, again = -1;
  const std::vector<float> input = InputOf(*dataset, 7, &label);
  EXPECT_EQ(InputOf(*dataset, 7, &again), input);
  EXPECT_EQ(label, again);
  EXPECT_NE(InputOf(*dataset, 8, &label), input);
  std::set<int64_t> labels;
  for (int64_t i = 0; i < 100; ++i) {
    for (const float value : InputOf(*dataset, i, &label)) EXPECT_LE(std::abs(value), 1);
    labels.insert(label);
  }
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace lockstep
