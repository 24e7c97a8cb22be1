#include "prepare/tokens.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/readable_file.h"
#include "base/in_threads.h"
#include "data/tokenizers/byte_pair_encoder.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokens/token_file.h"
#include "prepare/canonical_path.h"
#include "prepare/output_folder.h"
#include "prepare/pool.h"
#include "prepare/turnstile.h"
#include "prepare/work_progress.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(TokenFileHeader));
constexpr auto kTokenBytes = static_cast<int64_t>(sizeof(uint16_t));

// The number of bytes in which CutFrom() looks for a place to cut. Encoding a longer piece of text would take too much
// memory.
constexpr int64_t kLongestPiece = int64_t{4} << 20;

struct TextFile {
  std::string path;
  Stamp stamp;
};

std::vector<TextFile> Look(const std::vector<std::string>& paths) {
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0)
      throw DataError("{}: cannot be opened: {}", path, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path);
    if (status.st_size == 0) throw DataError("{}: the file is empty", path);
    files.push_back({.path = path, .stamp = StampOf(status)});
  }
  return files;
}

int64_t BytesOf(const std::vector<TextFile>& files) {
  int64_t bytes = 0;
  for (const TextFile& file : files) bytes += file.stamp.bytes;
  return bytes;
}

std::vector<std::string> JobOf(const PrepareTokensOptions& options,
                               const std::vector<TextFile>& files, const std::string& vocabulary) {
  std::string text;
  for (const TextFile& file : files) {
    text += fmt::format("{} {} {}\n", CanonicalPath(file.path), file.stamp.bytes,
                        file.stamp.changed_ns);
  }
  return {
      "prepare tokens",
      fmt::format("{} and {} more files, {} bytes, hash {:016x}", CanonicalPath(files.front().path),
                  files.size() - 1, BytesOf(files), std::hash<std::string>()(text)),
      fmt::format("--vocab {}", vocabulary),
      fmt::format("--split-on \"{}\"", options.separator),
      fmt::format("--validation-fraction {}", options.validation_fraction),
      fmt::format("--shard-tokens {}", options.shard_tokens),
      fmt::format("pieces of {} bytes", options.piece_bytes)};
}

struct Vocabulary {
  std::string job;                                             // the vocabulary's name and hash
  std::function<std::unique_ptr<Tokenizer>()> make_tokenizer;  // called once for each thread
};

Vocabulary VocabularyOf(const std::string& vocabulary) {
  if (vocabulary == "bytes") return {vocabulary, MakeByteTokenizer};
  std::error_code error;
  const fs::file_type type = fs::status(vocabulary, error).type();
  if (type == fs::file_type::none) throw DataError("{}: {}", vocabulary, error.message());
  if (type != fs::file_type::directory) {
    throw UsageError("--vocab {}: neither \"bytes\" nor a folder with a vocabulary", vocabulary);
  }
  const auto shared =
      std::make_shared<const BytePairVocabulary>(BytePairVocabulary::Read(vocabulary));
  return {fmt::format("{} (hash {:016x})", vocabulary, shared->hash()),
          [shared] { return std::make_unique<BytePairEncoder>(shared); }};
}

// A piece of a file in bytes [begin, end). PieceEncoder moves both ends to the next places where the text may be cut.
struct Piece {
  size_t file;
  int64_t begin;
  int64_t end;
  bool validation;
};

std::vector<Piece> PiecesOf(const std::vector<TextFile>& files,
                            const PrepareTokensOptions& options) {
  const auto training =
      static_cast<int64_t>((1 - options.validation_fraction) * static_cast<double>(BytesOf(files)));
  std::vector<Piece> pieces;
  int64_t before = 0;  // total bytes of the previous files
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t split = std::clamp(training - before, int64_t{0}, files[i].stamp.bytes);
    for (const bool validation : {false, true}) {
      const int64_t end = validation ? files[i].stamp.bytes : split;
      for (int64_t begin = validation ? split : 0; begin < end; begin += options.piece_bytes) {
        pieces.push_back({i, begin, std::min(begin + options.piece_bytes, end), validation});
      }
    }
    before += files[i].stamp.bytes;
  }
  return pieces;
}

// Encodes pieces to tokens. Only one thread at a time may use a PieceEncoder.
class PieceEncoder {
 public:
  PieceEncoder(const std::vector<TextFile>& files, const std::string& separator,
               std::unique_ptr<Tokenizer> tokenizer)
      : files_(files), separator_(separator), tokenizer_(std::move(tokenizer)) {}

  const std::vector<uint16_t>& Encode(const Piece& piece) {
    const TextFile& file = files_[piece.file];
    if (!text_ || text_->path() != file.path) text_.emplace(file.path);
    if (text_->bytes() != file.stamp.bytes || StampOf(file.path) != file.stamp)
      throw DataError("{}: has changed since the run began", file.path);
    const std::string_view text(text_->data(), text_->bytes());
    const int64_t end = CutFrom(text, piece.end);
    tokens_.clear();
    int64_t begin = CutFrom(text, piece.begin);
    if (begin == 0) tokens_.push_back(tokenizer_->end_of_text());
    while (begin < end) {
      const std::string_view rest = text.substr(begin, end - begin);
      const size_t found = separator_.empty() ? std::string_view::npos : rest.find(separator_);
      const std::string_view document = rest.substr(0, found);
      try {
        tokenizer_->Encode(document, tokens_);
      } catch (const BadText& bad) {
        throw DataError("{}: byte {}: {}", file.path, begin + static_cast<int64_t>(bad.position),
                        bad.reason);
      }
      begin += static_cast<int64_t>(document.size());
      if (found == std::string_view::npos) continue;
      tokens_.push_back(tokenizer_->end_of_text());
      begin += static_cast<int64_t>(separator_.size());
    }
    return tokens_;
  }

 private:
  // Returns the first place at or after `position` where `text` may be cut.
  int64_t CutFrom(std::string_view text, int64_t position) const {
    const auto size = static_cast<int64_t>(text.size());
    if (position == 0) return 0;
    for (int64_t cut = position; cut < std::min(size, position + kLongestPiece); ++cut) {
      if (tokenizer_->CutsAt(text, cut) && !IsInSeparator(text, cut)) return cut;
    }
    if (position + kLongestPiece >= size) return size;
    throw DataError("{}: no white space behind a word in {} bytes from byte {} on: is it a text?",
                    text_->path(), kLongestPiece, position);
  }

  bool IsInSeparator(std::string_view text, size_t cut) const {
    if (separator_.size() < 2) return false;
    const size_t reach = separator_.size() - 1;
    const size_t begin = cut - std::min(cut, reach);
    return text.substr(begin, cut + reach - begin).find(separator_) != std::string_view::npos;
  }

  const std::vector<TextFile>& files_;
  const std::string& separator_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<MappedFile> text_;
  std::vector<uint16_t> tokens_;
};

// Writes a stream of tokens into shards.
class TokenStream {
 public:
  // Continues a stream of which the first `tokens` tokens were already written.
  TokenStream(const OutputFolder& output, std::string name, int64_t shard_tokens, int64_t tokens)
      : output_(output), name_(std::move(name)), shard_tokens_(shard_tokens), tokens_(tokens) {}

  int64_t tokens() const { return tokens_; }

  void Append(std::span<const uint16_t> tokens) {
    while (!tokens.empty()) {
      if (!shard_) shard_ = std::make_unique<OutputFile>(Path(tokens_ / shard_tokens_), kPreparing);
      const int64_t place = tokens_ % shard_tokens_;
      const auto part = tokens.first(std::min<size_t>(tokens.size(), shard_tokens_ - place));
      shard_->Write(std::as_bytes(part), kHeaderBytes + kTokenBytes * place);
      tokens = tokens.subspan(part.size());
      tokens_ += static_cast<int64_t>(part.size());
      if (tokens_ % shard_tokens_ == 0) CloseShard();
    }
  }

  // Writes the headers and the final lengths of the shards. Returns the moves that rename the shards to `stem`, number
  // and `extension`; the name of a single shard has no number.
  OutputFolder::Moves Finish(const std::string& stem, const std::string& extension) {
    CloseShard();
    OutputFolder::Moves moves;
    const int64_t shards = CeilDivide(tokens_, shard_tokens_);
    for (int64_t i = 0; i < shards; ++i) {
      const int64_t tokens = std::min(shard_tokens_, tokens_ - i * shard_tokens_);
      const TokenFileHeader header{kTokenFileMagic, kTokenFileVersion,
                                   static_cast<int32_t>(tokens)};
      OutputFile file(Path(i), kPreparing);
      file.Write(std::as_bytes(std::span(header)), 0);
      file.Truncate(kHeaderBytes + kTokenBytes * tokens);
      file.Close();
      const std::string number = shards == 1 ? "" : fmt::format("_{:06}", i);
      moves.emplace_back(Name(i), stem + number + extension);
    }
    return moves;
  }

 private:
  void CloseShard() {
    if (shard_) shard_->Close();
    shard_.reset();
  }

  std::string Name(int64_t shard) const { return fmt::format("{}_{:06}", name_, shard); }
  std::string Path(int64_t shard) const { return output_.files() + "/" + Name(shard); }

  const OutputFolder& output_;
  std::string name_;
  int64_t shard_tokens_;
  int64_t tokens_;
  std::unique_ptr<OutputFile> shard_;  // the shard that is being written
};

// Says how much of the work is on the disk: the number of the next piece, and the number of tokens in each stream.
struct Position {
  int64_t piece = 0;  // the next piece
  int64_t training = 0;
  int64_t validation = 0;
};

Position ReadPosition(const OutputFolder& output) {
  Position position;
  std::istringstream(output.ReadPosition()) >> position.piece >> position.training >>
      position.validation;
  return position;
}

// Saves positions in the output folder, one at a time.
class Checkpoints {
 public:
  explicit Checkpoints(const OutputFolder& output) : output_(output) {}

  // Does nothing if another thread is saving a position, or if a later position was saved.
  void Write(const Position& position) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || position.piece < last_) return;
    SyncFileSystem(output_.files(), kPreparing);
    output_.WritePosition(
        fmt::format("{} {} {}\n", position.piece, position.training, position.validation));
    last_ = position.piece;
  }

 private:
  const OutputFolder& output_;
  std::mutex mutex_;
  int64_t last_ = 0;
};

double Megabytes(int64_t bytes) { return 1e-6 * static_cast<double>(bytes); }

}  // namespace

std::string PrepareTokens(const PrepareTokensOptions& options) {
  const std::string file_name = fs::path(options.output).filename().native();
  if (file_name.empty() || file_name == "." || file_name == "..")
    throw UsageError("--output \"{}\": names no file that can be made", options.output);
  const std::string extension = fs::path(options.output).extension().string();
  const std::string stem = options.output.substr(0, options.output.size() - extension.size());
  const std::string validation_stem = stem + "_validation";
  std::vector<std::string> results;
  for (const std::string& name : {stem, validation_stem}) {
    results.insert(results.end(), {name + extension, name + "_000000" + extension});
  }
  const Vocabulary vocabulary = VocabularyOf(options.vocabulary);
  const std::vector<TextFile> files = Look(options.files);
  const std::vector<Piece> pieces = PiecesOf(files, options);
  OutputFolder output(options.output, results, JobOf(options, files, vocabulary.job));
  if (output.is_committed()) return fmt::format("{}: complete", options.output);

  const Position start = ReadPosition(output);
  TokenStream training(output, "training", options.shard_tokens, start.training);
  TokenStream validation(output, "validation", options.shard_tokens, start.validation);
  const int64_t all_bytes = BytesOf(files);
  int64_t bytes_before = 0;
  for (int64_t i = 0; i < start.piece; ++i) bytes_before += pieces[i].end - pieces[i].begin;
  WorkProgress progress(options.live, "MB", Megabytes(all_bytes), Megabytes(bytes_before));
  Pool<PieceEncoder> encoders([&] {
    return std::make_unique<PieceEncoder>(files, options.separator, vocabulary.make_tokenizer());
  });
  Checkpoints checkpoints(output);
  int64_t bytes_since_checkpoint = 0;
  Turnstile turnstile(start.piece);
  InThreads(options.threads, static_cast<int64_t>(pieces.size()) - start.piece, [&](int64_t item) {
    const int64_t i = start.piece + item;
    std::optional<Position> checkpoint;
    const auto append = [&](const std::vector<uint16_t>& tokens) {
      (pieces[i].validation ? validation : training).Append(tokens);
      bytes_since_checkpoint += pieces[i].end - pieces[i].begin;
      if (bytes_since_checkpoint >= kPiecesOfACheckpoint * options.piece_bytes) {
        bytes_since_checkpoint = 0;
        checkpoint = {i + 1, training.tokens(), validation.tokens()};
      }
    };
    try {
      encoders.With([&](PieceEncoder& encoder) {
        const std::vector<uint16_t>& tokens = encoder.Encode(pieces[i]);
        turnstile.Pass(i, [&] { append(tokens); });
      });
    } catch (...) {
      turnstile.Close(i);
      throw;
    }
    if (checkpoint) checkpoints.Write(*checkpoint);
    progress.Add(Megabytes(pieces[i].end - pieces[i].begin));
  });

  OutputFolder::Moves moves = training.Finish(stem, extension);
  const OutputFolder::Moves more = validation.Finish(validation_stem, extension);
  moves.insert(moves.end(), more.begin(), more.end());
  output.Commit(moves);
  const double seconds = progress.seconds();
  return fmt::format(
      "{}: {} tokens{} in {} files; {:.1f} MB of text in {:.2f} s, {:.1f} MB/s; "
      "data.classes: {}",
      options.output, training.tokens(),
      validation.tokens() > 0 ? fmt::format(" and {} for validation", validation.tokens()) : "",
      moves.size(), Megabytes(all_bytes - bytes_before), seconds,
      Megabytes(all_bytes - bytes_before) / seconds, vocabulary.make_tokenizer()->vocabulary());
}

}  // namespace lockstep
