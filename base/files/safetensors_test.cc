#include "base/files/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Path() { return testing::TempDir() + "/x.safetensors"; }

std::string Content() {
  std::ostringstream content;
  content << std::ifstream(Path(), std::ios::binary).rdbuf();
  return content.str();
}

void WriteRaw(const std::string& content) { std::ofstream(Path(), std::ios::binary) << content; }

std::string WithHeader(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <typename Call>
std::string ErrorOf(const Call& call) {
  return MessageOf(ExitStatus::kCheckpoint, call);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const std::vector<NamedTensor> tensors{
      {"float", at::randn({2, 3})},
      {"transposed", at::randn({2, 3}).t()},
      {"bf16", at::randn({5}).to(at::kBFloat16)},
      {"count", at::full({}, 7, at::kLong)},
      {"empty", at::empty({0, 4})},
      {"bool", at::ones({3}, at::kBool)},
  };
  WriteSafetensors(Path(), tensors, {{"format", "pt"}});
  const auto read = ReadSafetensors(Path(), kGivenByUser);
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
    EXPECT_EQ(read.at(name).scalar_type(), tensor.scalar_type()) << name;
  }
}

TEST(Safetensors, CopiesIntoTensorsOfAnotherDtypeAndLeaves) {
  WriteSafetensors(Path(), {{"w", at::full({2, 2}, 1.5).to(at::kHalf)}}, {});
  const at::Tensor leaf = at::zeros({2, 2}).requires_grad_(true);
  CopyByName(Path(), ReadSafetensors(Path(), kGivenByUser), {{"w", leaf}});
  EXPECT_TRUE(at::equal(leaf, at::full({2, 2}, 1.5)));
}

TEST(Safetensors, NamesWhatDoesNotFit) {
  const std::map<std::string, at::Tensor> found{{"a", at::zeros({2})}, {"b", at::zeros({3})}};
  const at::Tensor a = at::ones({2});
  const auto error_of = [&](const std::vector<NamedTensor>& tensors) {
    return ErrorOf([&] { CopyByName("x.safetensors", found, tensors); });
  };
  EXPECT_EQ(error_of({{"a", a}, {"c", a}, {"b", at::ones({3})}}),
            "x.safetensors: not in the file: c (1 of the model's 3 tensors)");
  EXPECT_EQ(error_of({{"a", a}}), "x.safetensors: not in the model: b (1 of the file's 2 tensors)");
  EXPECT_EQ(error_of({{"a", a}, {"c", a}, {"d", a}, {"e", a}, {"f", a}, {"g", a}}),
            "x.safetensors: not in the file: c, d, e, f and 1 more (5 of the model's 6 tensors); "
            "not in the model: b (1 of the file's 2 tensors)");
  EXPECT_EQ(error_of({{"a", a}, {"b", at::ones({1, 3})}}),
            "x.safetensors: b has shape [3] where the model has [1, 3]");
  EXPECT_THAT(ErrorOf([&] {
                CopyByName("x.safetensors", found, {{"a", a}, {"b", a}},
                           [](const std::string& name) { return "; ask " + name; });
              }),
              HasSubstr("where the model has [2]; ask b"));
  EXPECT_TRUE(at::equal(a, at::ones({2}))) << "copied before the error";
}

TEST(Safetensors, RefusesEveryTruncation) {
  WriteSafetensors(Path(), {{"a", at::ones({4})}}, {});
  const std::string whole = Content();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    WriteRaw(whole.substr(0, bytes));
    EXPECT_THAT(ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); }), HasSubstr("x.safetensors"))
        << bytes;
  }
}

TEST(Safetensors, RefusesDamagedFiles) {
  const std::string entries[] = {
      "{",
      "[]x",
      "{\"a\": 3}",
      "{\"a\": {}}",
      R"({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": {"x": 1}, "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": [1e300], "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}})",
      R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
      R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})",
      R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})",
      R"({"a": {"dtype": "F32", "shape": [9223372036854775807, 4], "data_offsets": [0, 8]}})",
      R"({"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 8]}})",
  };
  for (const std::string& header : entries) {
    WriteRaw(WithHeader(header, "12345678"));
    EXPECT_THAT(ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); }), HasSubstr("damaged"))
        << header;
  }
  WriteRaw(std::string(8, '\xff') + "{}");
  EXPECT_THAT(ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); }),
              HasSubstr("no safetensors file"));
  EXPECT_THAT(ErrorOf([] { ReadSafetensors("/nowhere/x", kGivenByUser); }),
              HasSubstr("/nowhere/x"));
}

TEST(Safetensors, NamesDtypesThatAreNotRead) {
  WriteRaw(
      WithHeader(R"({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}})", "12"));
  EXPECT_EQ(ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); }),
            Path() +
                ": a has the dtype F8_E4M3, which is not read: convert it to one of BOOL, U8, I8, "
                "I16, I32, I64, F16, BF16, F32, F64 (in PyTorch, tensor.to() does)");
}

TEST(Safetensors, ReadsMetadataThatIsNull) {
  WriteRaw(WithHeader(
      R"({"__metadata__": null, "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})",
      "12"));
  EXPECT_EQ(ReadSafetensors(Path(), kGivenByUser).size(), 1u);
}

TEST(Safetensors, RefusesWhatDoesNotFillTheFile) {
  const auto error_of = [](const std::string& header, const std::string& data) {
    WriteRaw(WithHeader(header, data));
    return ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); });
  };
  const std::string first = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  EXPECT_THAT(error_of(first + "}", "12345678"), HasSubstr("4 bytes follow the last tensor"));
  const std::string shared = R"(, "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  EXPECT_THAT(error_of(first + shared, "1234"), HasSubstr("tensors overlap"));
  const std::string later = R"(, "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}})";
  EXPECT_THAT(error_of(first + later, "123456789012"),
              HasSubstr("bytes between the tensors belong to none"));
  EXPECT_THAT(error_of("{}", "1"), HasSubstr("1 bytes follow"));
}

TEST(Safetensors, NoticesAFlippedBit) {
  WriteSafetensors(Path(), {{"b", at::ones({4})}, {"a", at::zeros({2})}}, {});
  const std::string whole = Content();
  EXPECT_EQ(ReadSafetensors(Path(), kGivenByUser).size(), 2u);
  for (const size_t from_end : {1, 20, 24}) {
    std::string flipped = whole;
    flipped[flipped.size() - from_end] ^= 1;
    WriteRaw(flipped);
    EXPECT_THAT(ErrorOf([] { ReadSafetensors(Path(), kGivenByUser); }),
                HasSubstr("its tensors are not those that its checksum is of"))
        << from_end;
  }
  // A file that another program wrote has no checksum, and is accepted.
  WriteRaw(WithHeader(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "1234"));
  EXPECT_EQ(ReadSafetensors(Path(), kGivenByUser).size(), 1u);
}

}  // namespace
}  // namespace lockstep
