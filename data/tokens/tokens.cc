// A data set of memory-mapped token files. The files hold 16-bit little-endian numbers, which come after llm.c's header
// (token_file.h) if a file has that header.

#include "data/tokens/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/readable_file.h"
#include "data/dataset/sample_record.h"
#include "data/tokens/token_file.h"
#include "data/tokens/token_width.h"

namespace lockstep {
namespace {

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(TokenFileHeader));

// Throws Error (kData) if the file is of a known kind that holds no bare tokens.
void RefuseOtherFiles(const std::string& path, std::string_view bytes) {
  static constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"\x93NUMPY", "a .npy array"},
      {"PK\x03\x04", "a zip archive"},
      {"\x1f\x8b\x08", "compressed with gzip"},
      {"\x28\xb5\x2f\xfd", "compressed with zstd"},
      {"PAR1", "a Parquet file"},
      {"MMIDIDX\0", "Megatron's index of a token file"}};
  for (const auto& [begin, kind] : kKinds) {
    if (!bytes.starts_with(begin)) continue;
    throw DataError(
        "{}: {}: give a file of 16-bit tokens alone (array.astype(\"<u2\").tofile(NEW) writes one, "
        "`lockstep prepare tokens` makes one of texts)",
        path, kind);
  }
}

class TokenFile {
 public:
  explicit TokenFile(const std::string& path) : file_(path) {
    RefuseOtherFiles(path, {file_.data(), static_cast<size_t>(file_.bytes())});
    const bool has_header = ReadHeader();
    begin_ = has_header ? kHeaderBytes : 0;
    const int64_t bytes = file_.bytes() - begin_;
    tokens_ = bytes / static_cast<int64_t>(sizeof(uint16_t));
    if (has_header && header_[2] > 0) RefuseOtherWidths(bytes);
    if (bytes % sizeof(uint16_t) != 0 || (has_header && tokens_ != header_[2])) {
      throw DataError(
          "{}: {} bytes of tokens where {} are expected: it is cut short or no token file", path,
          bytes, has_header ? std::to_string(int64_t{2} * header_[2]) : "an even number");
    }
    if (has_header) return;
    const std::string why = WhyNot16Bits({data(), static_cast<size_t>(tokens_)});
    if (!why.empty()) throw DataError("{}: {}", path, why);
  }

  const std::string& path() const { return file_.path(); }
  int64_t tokens() const { return tokens_; }
  const uint16_t* data() const { return reinterpret_cast<const uint16_t*>(file_.data() + begin_); }

 private:
  // Returns whether the file begins with llm.c's header. Throws Error (kData) if this is the header of other files.
  bool ReadHeader() {
    std::memcpy(header_.data(), file_.data(),
                std::min<size_t>(sizeof(header_), static_cast<size_t>(file_.bytes())));
    const int32_t magic = header_[0];
    if (magic == kWideTokenFileMagic) {
      throw DataError("{}: its tokens have 32 bits (llm.c's magic number {}, version {}): {}",
                      file_.path(), magic, header_[1],
                      HowToGet16Bits("<u4", kHeaderBytes, HasTokensAbove()));
    }
    if (magic == static_cast<int32_t>(__builtin_bswap32(kTokenFileMagic))) {
      throw DataError("{}: its numbers are big-endian, and little-endian ones are read",
                      file_.path());
    }
    if (magic != kTokenFileMagic) return false;
    if (header_[1] != kTokenFileVersion) {
      throw DataError("{}: version {} of llm.c's format; {} is known", file_.path(), header_[1],
                      kTokenFileVersion);
    }
    if (file_.bytes() < kHeaderBytes) {
      throw DataError("{}: {} bytes, fewer than llm.c's header has: it is cut short", file_.path(),
                      file_.bytes());
    }
    return true;
  }

  // Throws Error (kData) if the number of tokens that the header says would fill the `bytes` bytes after it in another
  // width.
  void RefuseOtherWidths(int64_t bytes) const {
    for (const int64_t width : {1, 4, 8}) {
      if (bytes != width * header_[2]) continue;
      throw DataError(
          "{}: its tokens have {} bits, as its header and its size say: {}", file_.path(),
          8 * width,
          HowToGet16Bits(fmt::format("<u{}", width), kHeaderBytes, width == 4 && HasTokensAbove()));
    }
  }

  // Returns whether a token of 32 bits after the header is above 65,535.
  bool HasTokensAbove() const {
    for (int64_t at = kHeaderBytes; at + 4 <= file_.bytes(); at += 4) {
      uint32_t token = 0;
      std::memcpy(&token, file_.data() + at, sizeof(token));
      if (token > UINT16_MAX) return true;
    }
    return false;
  }

  MappedFile file_;
  std::array<int32_t, 3> header_{};  // the numbers of llm.c's header that have a meaning
  int64_t begin_ = 0;
  int64_t tokens_ = 0;
};

class Tokens : public Dataset {
 public:
  explicit Tokens(const TokensOptions& options) : length_(options.length) {
    spec_ = {.shape = {length_},
             .dtype = at::kLong,
             .classes = options.classes,
             .task = Task::kLanguage};
    for (const std::string& path : options.files) {
      files_.emplace_back(path);
      const int64_t samples = (files_.back().tokens() - 1) / length_;
      if (samples < 1) {
        throw DataError("{}: {} tokens are too few for one sample of {} and the token after it",
                        path, files_.back().tokens(), length_);
      }
      ends_.push_back(size() + samples);
    }
    record_ = std::make_shared<SampleRecord>(
        SampleRecord::Options{.part = "tokens",
                              .samples = size(),
                              .name_of =
                                  [this](int64_t i) {
                                    const Place place = PlaceOf(i);
                                    return fmt::format("{}: tokens {} to {}", place.file.path(),
                                                       place.begin, place.begin + length_);
                                  },
                              .read = [this](int64_t i) { return HashOf(PlaceOf(i)); },
                              .changed_since =
                                  [this](int64_t time_ns, std::vector<int64_t> samples) {
                                    std::vector<bool> is_changed;
                                    for (const TokenFile& file : files_) {
                                      is_changed.push_back(ChangedSince(file.path(), time_ns));
                                    }
                                    size_t file = 0;
                                    std::erase_if(samples, [&](int64_t i) {
                                      while (i >= ends_[file]) ++file;
                                      return !is_changed[file];
                                    });
                                    return samples;
                                  },
                              .most_read = std::max<int64_t>(1, kMostVerifiedTokens / length_)});
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    const Place place = PlaceOf(index);
    const auto& [file, begin] = place;
    const uint32_t hash = HashOf(place);
    record_->Check(index, hash);
    // Compilers vectorise loops of the form of the three loops below.
    const uint16_t* tokens = file.data() + begin;
    uint16_t greatest = 0;
    for (int64_t i = 0; i <= length_; ++i) greatest = std::max(greatest, tokens[i]);
    if (greatest >= spec_.classes) Refuse(file, begin);
    auto* inputs = reinterpret_cast<int64_t*>(input);
    auto* targets = reinterpret_cast<int64_t*>(target);
    for (int64_t i = 0; i < length_; ++i) inputs[i] = tokens[i];
    for (int64_t i = 0; i < length_; ++i) targets[i] = tokens[i + 1];
    record_->Keep(index, hash);
  }

  DataContents Contents() const override {
    DataContents contents;
    contents.AddPart(DataContents::kList, std::as_bytes(std::span(ends_)));
    return contents;
  }
  std::vector<std::shared_ptr<SampleRecord>> Records() const override { return {record_}; }

 private:
  // The most tokens that are read again before the first step of a resumed run, about.
  static constexpr int64_t kMostVerifiedTokens = int64_t{1} << 29;

  // The place of a sample's first token.
  struct Place {
    const TokenFile& file;
    int64_t begin;
  };

  Place PlaceOf(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const int64_t first_sample = end == ends_.begin() ? 0 : *std::prev(end);
    return {files_[end - ends_.begin()], (index - first_sample) * length_};
  }

  // Returns the hash of a sample's tokens, of which the last one is only a target.
  uint32_t HashOf(const Place& place) const {
    return SampleRecord::HashOf(std::as_bytes(
        std::span(place.file.data() + place.begin, static_cast<size_t>(length_ + 1))));
  }

  [[noreturn]] void Refuse(const TokenFile& file, int64_t begin) const {
    const uint16_t* tokens = file.data();
    while (tokens[begin] < spec_.classes) ++begin;
    throw DataError("{}: token {} is {}, out of range: data.classes is {}", file.path(), begin,
                    tokens[begin], spec_.classes);
  }

  int64_t length_;
  SampleSpec spec_;
  std::vector<TokenFile> files_;
  std::vector<int64_t>
      ends_;  // for each file, the number of samples in this file and in all files before it
  std::shared_ptr<SampleRecord> record_;
};

}  // namespace

std::shared_ptr<const Dataset> MapTokens(const TokensOptions& options) {
  return std::make_shared<Tokens>(options);
}

}  // namespace lockstep
