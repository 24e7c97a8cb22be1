// WhyNot16Bits(): tells files of 16-bit tokens from files of other numbers. A file without a header does not say how
// wide its tokens are, and a file of another width would otherwise be read as other tokens without an error.
//
// Promise: 16-bit tokens of a text are taken for such, whatever the text and the vocabulary are, also if the file is
// tiny, has few different tokens, or holds zeros alone. The rules compare the numbers with what chance would give:
//   32 and 64 bits, of either byte order: the upper halves of the tokens are 0 or, if there are tokens above 65,535,
//     small. The lower halves hold at least three different numbers if a quarter of them are greater, and otherwise at
//     least 16. Tokens of 16 bits in random order lie so with a chance below 1 in 100,000.
//   big-endian 16 bits and 8 bits (or a text): the two bytes of a number are distributed as those of a 16-bit token are
//     not, over at least 48 different numbers.
// Tokens of 16 bits that do lie so, such as a series whose every second token is 0, need llm.c's header
// (data/tokens/token_file.h), which says their width.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokens/token_width_test.cc)
//   tokens of another width -> a text with the width -> TokenWidth.OtherWidthsShow
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Returns why `numbers`, the whole content of a file without header, are no 16-bit tokens, and what to do. Returns an
// empty text if they may be. Looks at up to 98,304 numbers, from the beginning, the middle and the end.
std::string WhyNot16Bits(std::span<const uint16_t> numbers);

// Returns what to do with tokens of the type `type`, which is NumPy's name of it, that begin at the byte `offset` of a
// file. `above` says whether there are tokens above 65,535.
std::string HowToGet16Bits(const std::string& type, int64_t offset, bool above);

}  // namespace lockstep
