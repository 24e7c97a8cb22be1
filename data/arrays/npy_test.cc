#include "data/arrays/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/dataset/testing/read_sample.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a .npy file of version 1 whose header is `dictionary`, and whose elements have the bytes `numbers`.
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

TEST(Npy, SaysWhatAHeaderSays) {
  const NpyInfo info =
      ReadNpyInfo(WriteTestFile("i.npy", NpyOf<int16_t>("<i2", "3, 2", {0, 4, 2, 5, 6, 7})));
  EXPECT_EQ(info.type, "<i2");
  EXPECT_EQ(info.shape, (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(HoldsIntegers(testing::TempDir() + "/i.npy"));
  EXPECT_TRUE(HoldsIntegers(WriteTestFile("f.npy", NpyOf<float>("<f4", "2,", {1, 2}))));
  EXPECT_FALSE(HoldsIntegers(WriteTestFile("f.npy", NpyOf<float>("<f4", "2,", {1, 2.5}))));
  EXPECT_THAT(DataErrorOf([] { ReadNpyInfo(WriteTestFile("n.npy", "none")); }),
              HasSubstr("no .npy file"));
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
    const auto dataset =
        MapNpy({.inputs = WriteTestFile("p.npy", NpyOf<uint8_t>("|u1", shape, bytes)),
                .dtype = at::kByte});
    EXPECT_EQ(dataset->spec().shape, expected);
    EXPECT_EQ(dataset->spec().channels_last, channels_last);
    std::vector<std::byte> image(60);
    ReadImage(*dataset, 1, image);
    EXPECT_EQ(std::memcmp(image.data(), bytes.data() + 60, 60), 0);
  }
  EXPECT_THAT(DataErrorOf([] {
                MapNpy({.inputs = WriteTestFile("p.npy", NpyOf<float>("<f4", "1, 2, 1", {1, 2})),
                        .dtype = at::kByte});
              }),
              HasSubstr("PIXELS are unsigned bytes of 3 or 4 dimensions, not [1, 2, 1]"));
}

TEST(Npy, OneRuleSaysWhichArraysAreImages) {
  struct Case {
    std::string type;
    std::vector<int64_t> array, image;  // an empty image: the array holds none
    bool channels_last = false;
  };
  for (const Case& of : std::vector<Case>{{"|u1", {9, 28, 28}, {1, 28, 28}},
                                          {"|u1", {9, 1, 28, 28}, {1, 28, 28}},
                                          {"|u1", {9, 28, 28, 1}, {1, 28, 28}},
                                          {"|u1", {9, 3, 28, 27}, {3, 28, 27}},
                                          {"|u1", {9, 28, 27, 3}, {3, 28, 27}, true},
                                          {"|u1", {9, 4, 28, 27}, {4, 28, 27}},
                                          {"|u1", {9, 28, 27, 4}, {28, 27, 4}},
                                          {"|u1", {9, 3, 28, 3}, {3, 28, 3}},
                                          {"|u1", {9, 28}, {}},
                                          {"|u1", {9, 2, 3, 28, 28}, {}},
                                          {"|i1", {9, 28, 28}, {}},
                                          {"<f4", {9, 3, 28, 28}, {}}}) {
    const auto layout = PixelLayoutOf({of.type, of.array});
    EXPECT_EQ(layout.has_value(), !of.image.empty());
    if (!layout) continue;
    EXPECT_EQ(layout->shape, of.image);
    EXPECT_EQ(layout->channels_last, of.channels_last);
  }
}

TEST(Npy, ReadsMasks) {
  const std::string images =
      WriteTestFile("x.npy", NpyOf<float>("<f4", "2, 1, 1, 3", {0, 0, 0, 0, 0, 0}));
  for (const std::string shape : {"2, 1, 3", "2, 1, 1, 3", "2, 1, 3, 1"}) {
    const auto dataset = MapNpy(
        {.inputs = images,
         .targets = WriteTestFile("y.npy", NpyOf<int32_t>("<i4", shape, {0, 2, 255, 1, 0, 0})),
         .task = Task::kSegmentation});
    EXPECT_EQ(dataset->spec().classes, 3);
    EXPECT_EQ(dataset->spec().target_shape(), (std::vector<int64_t>{1, 3}));
    std::vector<std::byte> image(12), mask(3);
    dataset->Read(0, 0, image.data(), mask.data());
    EXPECT_EQ(mask, (std::vector{std::byte{0}, std::byte{2}, std::byte{255}}));
  }
  const auto unknown = MapNpy({.inputs = images, .task = Task::kSegmentation, .classes = 3});
  std::vector<std::byte> image(12), mask(3);
  unknown->Read(1, 0, image.data(), mask.data());
  EXPECT_EQ(mask, std::vector(3, std::byte{255}));
}

TEST(Npy, ReadsTexts) {
  for (const auto& [shape, expected] : {std::pair("2, 4", std::vector<int64_t>{4}),
                                        std::pair("2, 2, 2", std::vector<int64_t>{2, 2})}) {
    const auto dataset =
        MapNpy({.inputs = WriteTestFile(
                    "x.npy", NpyOf<uint16_t>("<u2", shape, {1, 2, 3, 4, 5, 6, 7, 65535})),
                .targets = WriteTestFile("y.npy", NpyOf<int64_t>("<i8", "2,", {0, 1})),
                .dtype = at::kLong});
    EXPECT_EQ(dataset->spec().shape, expected);
    EXPECT_EQ(dataset->spec().dtype, at::kLong);
    std::vector<int64_t> tokens(4);
    int64_t label = 0;
    dataset->Read(1, 0, reinterpret_cast<std::byte*>(tokens.data()),
                  reinterpret_cast<std::byte*>(&label));
    EXPECT_EQ(tokens, (std::vector<int64_t>{5, 6, 7, 65535}));
    EXPECT_EQ(label, 1);
  }
}

TEST(Npy, ReadsEachOrder) {
  // The array is numpy.arange(12).reshape(2, 2, 3), of big-endian numbers in Fortran's order.
  std::string numbers;
  for (const char number : {0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11}) numbers += {'\0', number};
  const auto dataset =
      MapNpy({.inputs = WriteTestFile(
                  "x.npy", NpyText("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2, 3)}",
                                   numbers))});
  int64_t label = 0;
  EXPECT_EQ(InputOf(*dataset, 0, &label), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(InputOf(*dataset, 1, &label), (std::vector<float>{6, 7, 8, 9, 10, 11}));
}

TEST(Npy, HeaderIsThatOfNumPy) {
  // The header that NumPy writes for numpy.zeros((2, 3), numpy.uint8) has 128 bytes.
  const std::string header = NpyHeader("|u1", std::vector<int64_t>{2, 3});
  EXPECT_EQ(header.size(), 128);
  const auto read = MapNpy({.inputs = WriteTestFile("x.npy", header + "abcdef")});
  int64_t label = 0;
  EXPECT_EQ(InputOf(*read, 1, &label), (std::vector<float>{'d', 'e', 'f'}));
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
  EXPECT_THAT(error_of(NpyOf<float>("!f4", "2, 2", four)), HasSubstr("numbers of type !f4"));
  EXPECT_THAT(error_of(NpyOf<float>("<c8", "2", four)), HasSubstr("numbers of type <c8"));
  EXPECT_THAT(
      error_of(NpyText("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")),
      HasSubstr("numbers of type several fields"));
  EXPECT_THAT(error_of(NpyText("{'descr': '<f4', 'fortran_order': 1, 'shape': (1, 1)}", "1234")),
              HasSubstr("fortran_order is neither True nor False"));
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
  EXPECT_EQ(MapNpy({.inputs = inputs,
                    .targets = WriteTestFile("y.npy", NpyOf<float>("<f4", "2,", {0, 1}))})
                ->spec()
                .classes,
            2);
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2,", {0, 1.5}), kClasses, 0),
              HasSubstr("sample 1: label 1.5 is no integer: labels count the classes from 0"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "2,", {NAN, 0}), kClasses, 0),
              HasSubstr("sample 0: label nan is no integer"));
  EXPECT_THAT(error_of(NpyOf<double>("<f8", "2,", {0, 1e300}), kClasses, 0),
              HasSubstr("sample 1: label 1e+300 is no integer"));
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "2, 2", {0, 1, 1, 0}), kClasses, 0),
              HasSubstr("labels are one integer for each sample, not an array of [2, 2]: of a "
                        "column for each class take numpy.argmax(labels, 1)"));
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

TEST(Npy, RemarksOnClassesWithoutSamples) {
  const std::string inputs = WriteTestFile("x.npy", NpyOf<float>("<f4", "2, 1, 1, 1", {0, 0}));
  const auto opened = [&](const std::string& shape, std::vector<int64_t> labels, Task task,
                          int64_t classes = 0) {
    return MapNpy({.inputs = inputs,
                   .targets = WriteTestFile("y.npy", NpyOf<int64_t>("<i8", shape, labels)),
                   .task = task,
                   .classes = classes});
  };
  constexpr const char* kGap =
      "its labels are 0, 30: classes are counted from 0, so the model learns";
  EXPECT_THAT(opened("2,", {0, 30}, Task::kClassification)->Remarks(),
              ElementsAre(HasSubstr(kGap)));
  EXPECT_THAT(opened("2, 1, 1", {30, 0}, Task::kSegmentation)->Remarks(),
              ElementsAre(HasSubstr(kGap)));
  // A pixel without a class, or a number of classes that the user gives, is no reason for a remark.
  EXPECT_THAT(opened("2, 1, 1", {0, 255}, Task::kSegmentation)->Remarks(), IsEmpty());
  EXPECT_THAT(opened("2,", {0, 30}, Task::kClassification, 31)->Remarks(), IsEmpty());
  EXPECT_THAT(DataErrorOf([&] { opened("2,", {0, int64_t{1} << 60}, Task::kClassification); }),
              HasSubstr("sample 1: label 1152921504606846976 is no likely class number: if it is "
                        "one, set data.classes"));
}

TEST(Npy, RefusesMasksAndTextsThatDoNotFit) {
  const std::string images = WriteTestFile("x.npy", NpyOf<float>("<f4", "1, 1, 1, 3", {0, 0, 0}));
  const auto error_of = [&](const std::string& targets, int64_t classes) {
    return DataErrorOf([&] {
      MapNpy({.inputs = images,
              .targets = WriteTestFile("y.npy", targets),
              .task = Task::kSegmentation,
              .classes = classes});
    });
  };
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "1, 3", {0, 1, 2}), 0),
              HasSubstr("masks are integers of [samples, 1, 3] as the images are, not [1, 3]"));
  EXPECT_THAT(error_of(NpyOf<float>("<f4", "1, 1, 3", {0, 1, 0.5}), 0),
              HasSubstr("sample 0, row 0, column 2: 0.5 is no integer, as classes are"));
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "1, 1, 3", {0, 2, 255}), 2),
              HasSubstr("sample 0, row 0, column 1: class 2 is out of range: data.classes is 2"));
  EXPECT_THAT(error_of(NpyOf<int64_t>("<i8", "1, 1, 3", {0, -1, 0}), 0),
              HasSubstr("column 1: class -1 is out of range: there can be 255"));
  EXPECT_THAT(DataErrorOf([&] {
                MapNpy({.inputs = WriteTestFile("x.npy", NpyOf<float>("<f4", "1, 3", {0, 0, 0})),
                        .task = Task::kSegmentation});
              }),
              HasSubstr("are no images of [channels, height, width]"));
  EXPECT_THAT(DataErrorOf([&] {
                MapNpy({.inputs = WriteTestFile("x.npy", NpyOf<float>("<f4", "3,", {0, 0, 0})),
                        .dtype = at::kLong});
              }),
              HasSubstr("TEXTS are integers of [samples, tokens]"));
  const auto padded =
      MapNpy({.inputs = WriteTestFile("x.npy", NpyOf<int32_t>("<i4", "1, 3", {4, -100, 0})),
              .dtype = at::kLong});
  std::vector<std::byte> text(24), label(8);
  EXPECT_THAT(DataErrorOf([&] { padded->Read(0, 0, text.data(), label.data()); }),
              HasSubstr("x.npy: sample 0: -100 is no token"));
  const auto halves =
      MapNpy({.inputs = WriteTestFile("x.npy", NpyOf<float>("<f4", "1, 3", {4, 0.5, 0})),
              .dtype = at::kLong});
  EXPECT_THAT(DataErrorOf([&] { halves->Read(0, 0, text.data(), label.data()); }),
              HasSubstr("x.npy: sample 0: 0.5 is no token"));
}

}  // namespace
}  // namespace lockstep
