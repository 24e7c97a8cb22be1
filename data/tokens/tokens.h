// Reads files of 16-bit token numbers, in llm.c's and nanoGPT's formats.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokens/tokens_test.cc)
//   a file that is missing, empty, truncated, of another kind, or ends in the middle of a token
//     -> Error (kData) with path -> Tokens.RefusesWhatIsNoTokenFile
//   tokens of another width or byte order, which the header or the numbers show (data/tokens/token_width.h)
//     -> Error (kData) with path, the width and what to do -> Tokens.RefusesOtherWidths, tests/binary_files_test.py
//   a token out of range -> Error (kData) from Read(), with path and place -> Tokens.RefusesATokenOutOfRange
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

struct TokensOptions {
  // The paths of files of 16-bit tokens: llm.c's files, or nanoGPT's files, which have no header.
  std::vector<std::string> files;
  int64_t length = 1024;    // the number of tokens of one sample
  int64_t classes = 50257;  // all tokens must be in [0, classes)
};

// Returns a data set of token files. The i-th input of a file, from 0, consists of the file's tokens [i * length,
// (i + 1) * length), and its target of the tokens [i * length + 1, (i + 1) * length + 1). The data set has the samples
// of the first file, then those of the second file, and so on. Tokens at the end of a file that do not fill a sample
// are not used. MapTokens() maps the files into memory without reading the tokens. Throws Error (kData). Read() of the
// data set throws Error (kData) if a token is out of range.
std::shared_ptr<const Dataset> MapTokens(const TokensOptions& options);

}  // namespace lockstep
