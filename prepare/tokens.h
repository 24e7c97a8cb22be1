// `lockstep prepare tokens`: turns text files into token files. A token file has llm.c's header and then 16-bit
// numbers. Training reads token files with data.format TOKENS.
//
// Promise: the tokens of the files follow one after the other. Each document (a file, or each of the parts into which
// `separator` divides a file) is encoded as one text. An end-of-text token stands before each file and in the place of
// each `separator`, as in the files that llm.c's own scripts write. The same files and options give the same bytes.
// Neither the number of threads nor interruptions change the bytes (prepare/output_folder.h).
//
// How:
//   1. Each file is cut every piece_bytes and where the validation part begins, or a little later: each cut is moved
//      forward to the next place that lies outside a separator and at which the text may be cut. The last piece ends
//      with the file. A text may be cut where the tokenizer encodes the two parts to the same tokens as the whole.
//   2. Threads take pieces in turn, encode them, and append the tokens in the order of the pieces (Turnstile). A thread
//      keeps one piece and its tokens in memory. The files are memory-mapped, so the rest of the text takes memory only
//      in the page cache.
//   3. There is one stream of tokens for training and one for validation. Token t of a stream is token t % shard_tokens
//      in shard t / shard_tokens of this stream; both count from 0.
//   4. After every kPiecesOfACheckpoint * piece_bytes of text a thread takes note of the position: the number of the
//      next piece and the lengths of the streams. It syncs the file system and then saves the position. The next run
//      after an interruption continues from the saved position. It writes the tokens after this position again, with
//      the same content.
//   5. At the end each shard gets its header, its final length, and its name (OutputFolder::Commit). A single training
//      shard is named OUT.bin; several are named OUT_000000.bin, ... The validation shards are named in the same way,
//      with OUT_validation instead of OUT.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/tokens_test.cc)
//   a text that is not UTF-8 -> Error (kData) with file and byte -> Tokens.NamesBadUtf8
//   the text has no place to cut it in kLongestPiece bytes -> Error (kData) -> Tokens.RefusesTextWithoutWhiteSpace
//   an output that names no file -> Error (kUsage) before any work -> Tokens.RefusesOutputs
//   a file is missing, is empty, or changes during the run -> Error (kData) with its path -> Tokens.RefusesFiles
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct PrepareTokensOptions {
  std::vector<std::string> files;
  std::string output;
  std::string vocabulary = "bytes";  // "bytes", or a folder with GPT-2's vocab.json and merges.txt
  // The text between two documents in a file; empty: each file is one document.
  std::string separator;
  // The fraction of the text, taken from its end, that is for validation.
  double validation_fraction = 0;
  int64_t shard_tokens = 100'000'000;
  int threads = 1;
  bool live = false;                       // whether standard output is a terminal
  int64_t piece_bytes = int64_t{1} << 20;  // bytes of text in a piece
};

inline constexpr int64_t kPiecesOfACheckpoint = 16;

// Writes the token files. Returns one line that says what was done. Throws Error (kUsage, kData).
std::string PrepareTokens(const PrepareTokensOptions& options);

}  // namespace lockstep
