// Texts made token files: 16-bit numbers behind llm.c's header, as data.format TOKENS reads them.
//
// Promise: the tokens are those of the files one after the other, each whole file encoded as one text;
// before each file, and in the place of each `separator`, stands the end-of-text token, as in the files
// that llm.c's own scripts write. The same files and options give the same bytes, whatever the threads
// and interruptions (prepare/output_folder.h).
//
// How:
//   1. Each file is cut into pieces of about kPieceBytes: at the first place from there on where the
//      tokenizer says that both sides may be encoded by themselves, and that no separator spans.
//   2. Threads take pieces in turn, encode them, and append them in their order (Turnstile). A thread
//      holds one piece and its tokens: that, and the pages of the files that the kernel keeps, is all
//      the memory.
//   3. Token t of a stream (training, validation) is number t % shard_tokens of its shard t / shard_tokens.
//   4. Every kPiecesOfACheckpoint * piece_bytes of text a thread notes which piece comes next and how long
//      the streams are, syncs the file system, and writes that down. A run that was interrupted goes on
//      there: what was written beyond is written again, with the same content.
//   5. At the end each shard gets its header and its length, and its name (OutputFolder::Commit): OUT.bin,
//      or OUT_000000.bin, ... where there are several. Those of validation are OUT_validation.bin, ...
//
// what can fail -> what the caller sees -> the test that shows it (prepare/tokens_test.cc)
//   a text that is not UTF-8 -> Error (kData) with file and byte -> Tokens.NamesBadUtf8
//   no place to cut in kLongestPiece bytes -> Error (kData) -> Tokens.RefusesTextWithoutWhiteSpace
//   an output that names no file -> Error (kUsage) before any work -> Tokens.RefusesOutputs
//   no such file, an empty one, one that changes -> Error (kData) with its path -> Tokens.RefusesFiles
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct PrepareTokensOptions {
  std::vector<std::string> files;
  std::string output;
  std::string vocabulary = "bytes";  // or a folder with GPT-2's two files
  std::string separator;             // of documents inside a file; empty: none
  double validation_fraction = 0;    // of the text, from its end
  int64_t shard_tokens = 100'000'000;
  int threads = 1;
  bool live = false;                       // standard output is a terminal
  int64_t piece_bytes = int64_t{1} << 20;  // that a thread takes at once
};

inline constexpr int64_t kPiecesOfACheckpoint = 16;

// Returns what it has done, in a line. Throws Error (kUsage, kData).
std::string PrepareTokens(const PrepareTokensOptions& options);

}  // namespace lockstep
