// Token files, mapped into memory: 16-bit little-endian numbers, behind llm.c's header of 256 32-bit
// numbers (magic, version, tokens) where there is one.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "data/dataset.h"

namespace lockstep {
namespace {

constexpr int32_t kMagic = 20240520;
constexpr int32_t kVersion = 1;
constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);

class TokenFile {
 public:
  explicit TokenFile(const std::string& path) : path_(path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) {
      const int error = errno;
      if (file >= 0) close(file);
      throw DataError("{}: cannot be opened: {}", path, std::strerror(error));
    }
    bytes_ = status.st_size;
    void* memory =
        bytes_ == 0 ? MAP_FAILED : mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    close(file);
    if (bytes_ == 0) throw DataError("{}: the file is empty", path);
    if (memory == MAP_FAILED)
      throw DataError("{}: cannot be mapped: {}", path, std::strerror(error));
    memory_ = static_cast<const char*>(memory);
    try {
      FindTokens();
    } catch (...) {
      Unmap();
      throw;
    }
  }

  TokenFile(TokenFile&& other) noexcept
      : path_(std::move(other.path_)),
        bytes_(other.bytes_),
        memory_(std::exchange(other.memory_, nullptr)),
        begin_(other.begin_),
        tokens_(other.tokens_) {}
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile() { Unmap(); }

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }

  int64_t operator[](int64_t index) const {
    uint16_t token = 0;
    std::memcpy(&token, memory_ + begin_ + index * sizeof(token), sizeof(token));
    return token;
  }

 private:
  void FindTokens() {
    int32_t header[3] = {};
    if (bytes_ >= kHeaderBytes) std::memcpy(header, memory_, sizeof(header));
    if (header[0] == kMagic) {
      if (header[1] != kVersion) {
        throw DataError("{}: version {} of llm.c's format; {} is known", path_, header[1],
                        kVersion);
      }
      begin_ = kHeaderBytes;
    }
    const int64_t bytes = bytes_ - begin_;
    tokens_ = bytes / static_cast<int64_t>(sizeof(uint16_t));
    if (bytes % sizeof(uint16_t) != 0 || (begin_ > 0 && tokens_ != header[2])) {
      throw DataError(
          "{}: {} bytes of tokens where {} are expected: it is cut short or no token file", path_,
          bytes, begin_ > 0 ? std::to_string(int64_t{2} * header[2]) : "an even number");
    }
  }

  void Unmap() {
    if (memory_ != nullptr) munmap(const_cast<char*>(memory_), bytes_);
  }

  std::string path_;
  int64_t bytes_ = 0;
  const char* memory_ = nullptr;
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
    std::vector<int64_t> tokens(length_ + 1);
    for (int64_t i = 0; i <= length_; ++i) {
      tokens[i] = file[begin + i];
      if (tokens[i] >= spec_.classes) {
        throw DataError("{}: token {} is {}, out of range: data.classes is {}", file.path(),
                        begin + i, tokens[i], spec_.classes);
      }
    }
    std::memcpy(input, tokens.data(), spec_.bytes());
    std::memcpy(target, tokens.data() + 1, spec_.target_bytes());
  }

 private:
  int64_t length_;
  SampleSpec spec_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> ends_;  // of each file's samples, among all
};

}  // namespace

std::shared_ptr<const Dataset> MapTokens(const TokensOptions& options) {
  return std::make_shared<Tokens>(options);
}

}  // namespace lockstep
