// Reads files of 16-bit token numbers, in llm.c's and nanoGPT's formats.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokens/tokens_test.cc)
//   a file that is missing, empty, truncated, of another kind, or ends in the middle of a token
//     -> Error (kData) with path -> Tokens.RefusesWhatIsNoTokenFile
//   a token out of range -> Error (kData) from Read(), with path and place -> Tokens.RefusesATokenOutOfRange
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

struct TokensOptions {
  std::vector<std::string>
      files;                // 16-bit token numbers: llm.c's files, or nanoGPT's without header
  int64_t length = 1024;    // tokens of one sample
  int64_t classes = 50257;  // tokens are in [0, classes)
};

// Sample i is tokens [i * length, (i + 1) * length) of a file, its target the tokens one further; what
// is left at a file's end is not used. The files are mapped, not read. Throws Error (kData), also from
// Read() where a token is out of range.
std::shared_ptr<const Dataset> MapTokens(const TokensOptions& options);

}  // namespace lockstep
