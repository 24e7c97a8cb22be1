// A data set of memory-mapped token files. The files hold 16-bit little-endian numbers, which come after llm.c's header
// (token_file.h) if a file has that header.

#include "data/tokens/tokens.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "data/tokens/token_file.h"

namespace lockstep {
namespace {

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(TokenFileHeader));

class TokenFile {
 public:
  explicit TokenFile(const std::string& path) : file_(path) {
    int32_t header[3] = {};
    if (file_.bytes() >= kHeaderBytes) std::memcpy(header, file_.data(), sizeof(header));
    const bool has_header = header[0] == kTokenFileMagic;
    if (has_header && header[1] != kTokenFileVersion) {
      throw DataError("{}: version {} of llm.c's format; {} is known", path, header[1],
                      kTokenFileVersion);
    }
    begin_ = has_header ? kHeaderBytes : 0;
    const int64_t bytes = file_.bytes() - begin_;
    tokens_ = bytes / static_cast<int64_t>(sizeof(uint16_t));
    if (bytes % sizeof(uint16_t) != 0 || (has_header && tokens_ != header[2])) {
      throw DataError(
          "{}: {} bytes of tokens where {} are expected: it is cut short or no token file", path,
          bytes, has_header ? std::to_string(int64_t{2} * header[2]) : "an even number");
    }
  }

  const std::string& path() const { return file_.path(); }
  int64_t tokens() const { return tokens_; }
  const uint16_t* data() const { return reinterpret_cast<const uint16_t*>(file_.data() + begin_); }

 private:
  MappedFile file_;
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
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const TokenFile& file = files_[end - ends_.begin()];
    const int64_t first_sample = end == ends_.begin() ? 0 : *std::prev(end);
    const int64_t begin = (index - first_sample) * length_;
    // Compilers vectorise loops of the form of the three loops below.
    const uint16_t* tokens = file.data() + begin;
    uint16_t greatest = 0;
    for (int64_t i = 0; i <= length_; ++i) greatest = std::max(greatest, tokens[i]);
    if (greatest >= spec_.classes) Refuse(file, begin);
    auto* inputs = reinterpret_cast<int64_t*>(input);
    auto* targets = reinterpret_cast<int64_t*>(target);
    for (int64_t i = 0; i < length_; ++i) inputs[i] = tokens[i];
    for (int64_t i = 0; i < length_; ++i) targets[i] = tokens[i + 1];
  }

 private:
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
};

}  // namespace

std::shared_ptr<const Dataset> MapTokens(const TokensOptions& options) {
  return std::make_shared<Tokens>(options);
}

}  // namespace lockstep
