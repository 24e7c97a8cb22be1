#include "data/tokens/token_width.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace lockstep {
namespace {

// Returns three pieces of `numbers`, or all of them if they are few. The pieces begin at multiples of 64 bits.
std::vector<uint16_t> SampleOf(std::span<const uint16_t> numbers) {
  constexpr size_t kPiece = 32'768, kAligned = 4;
  if (numbers.size() <= 3 * kPiece) return {numbers.begin(), numbers.end()};
  std::vector<uint16_t> sample;
  const size_t last = numbers.size() - kPiece;
  for (const size_t begin : {size_t{0}, last / 2, last}) {
    const auto piece = numbers.subspan(begin / kAligned * kAligned, kPiece);
    sample.insert(sample.end(), piece.begin(), piece.end());
  }
  return sample;
}

// Returns whether each token of the sample probably consists of `parts` numbers, the least significant first.
bool AreWide(std::span<const uint16_t> sample, size_t parts) {
  // No vocabulary has more than 16 times 65,536 tokens. One that has more than 65,536 has tokens near 65,536.
  constexpr uint16_t kMostUpper = 15, kHighToken = 32'768;
  constexpr double kChance = 1e-5;
  // Fewer different tokens, or few among zeros, are rather a regular series of 16-bit tokens, such as 0, 1, 0, 1, ...
  constexpr size_t kFew = 3, kMany = 16;
  const size_t tokens = sample.size() / parts;
  uint16_t greatest_upper = 0, greatest_lower = 0;
  for (size_t i = 0; i < tokens; ++i) {
    greatest_lower = std::max(greatest_lower, sample[i * parts]);
    greatest_upper = std::max(greatest_upper, sample[i * parts + 1]);
    for (size_t part = 2; part < parts; ++part) {
      if (sample[i * parts + part] != 0) return false;
    }
  }
  if (greatest_upper > kMostUpper) return false;
  if (greatest_upper > 0 && greatest_lower < kHighToken) return false;
  // The chance that the numbers above greatest_upper lie in the lower parts alone, if all numbers are in random order.
  double chance = 1;
  auto places = static_cast<double>(tokens), all = static_cast<double>(tokens * parts);
  size_t above = 0;
  std::set<uint16_t> different;
  for (size_t i = 0; i < tokens; ++i) {
    const uint16_t lower = sample[i * parts];
    if (different.size() < kMany) different.insert(lower);
    if (lower <= greatest_upper) continue;
    ++above;
    if (chance > kChance) chance *= places-- / all--;
  }
  const bool are_dense = 4 * above >= tokens;
  return chance <= kChance && different.size() >= (are_dense ? kFew : kMany);
}

// Returns the numbers whose bytes are those of `numbers` in the opposite order: big-endian numbers of any width become
// little-endian ones.
std::vector<uint16_t> WithReversedBytes(std::span<const uint16_t> numbers) {
  std::vector<uint16_t> reversed(numbers.rbegin(), numbers.rend());
  for (uint16_t& number : reversed) number = static_cast<uint16_t>(number << 8 | number >> 8);
  return reversed;
}

// Returns whether a token that consists of `parts` numbers is above 65,535.
bool HasTokensAbove(std::span<const uint16_t> numbers, size_t parts) {
  for (size_t i = 1; i < numbers.size(); i += parts) {
    if (numbers[i] != 0) return true;
  }
  return false;
}

// The bytes of the numbers of a sample.
struct Bytes {
  std::array<size_t, 2> greatest{};  // of the lower and of the upper bytes
  std::array<size_t, 2> high{};      // how many lower and upper bytes are 128 or more
  size_t upper_zeros = 0;
  size_t different = 0;  // the number of different numbers, as far as kDifferent
};

// The fewest different numbers that are enough to judge by bytes: in so many 16-bit tokens the upper bit of the lower
// byte is 0 or 1 about equally often.
constexpr size_t kDifferent = 48;

Bytes BytesOf(std::span<const uint16_t> sample) {
  Bytes bytes;
  std::set<uint16_t> different;
  for (const uint16_t number : sample) {
    const std::array<size_t, 2> parts{static_cast<size_t>(number & 0xff),
                                      static_cast<size_t>(number >> 8)};
    for (size_t part = 0; part < parts.size(); ++part) {
      bytes.greatest[part] = std::max(bytes.greatest[part], parts[part]);
      bytes.high[part] += parts[part] >= 128 ? 1 : 0;
    }
    bytes.upper_zeros += parts[1] == 0 ? 1 : 0;
    if (different.size() < kDifferent) different.insert(number);
  }
  bytes.different = different.size();
  return bytes;
}

constexpr char kUnlessHeader[] = "; if they do have 16 bits, put llm.c's header before them";

}  // namespace

std::string HowToGet16Bits(const std::string& type, int64_t offset, bool above) {
  if (above) {
    return "16 bits are read, which hold no token above 65535: take a vocabulary of at most 65536 "
           "tokens";
  }
  return fmt::format(
      "16 bits are read: write them so "
      "(numpy.fromfile(FILE, \"{}\"{}).astype(\"<u2\").tofile(NEW))",
      type, offset == 0 ? "" : fmt::format(", offset={}", offset));
}

std::string WhyNot16Bits(std::span<const uint16_t> numbers) {
  const std::vector<uint16_t> sample = SampleOf(numbers);
  const std::vector<uint16_t> reversed = WithReversedBytes(sample);
  for (const size_t parts : {4, 2}) {
    const bool is_little = AreWide(sample, parts);
    if (!is_little && !AreWide(reversed, parts)) continue;
    const bool above = is_little ? HasTokensAbove(numbers, parts)
                                 : HasTokensAbove(WithReversedBytes(numbers), parts);
    return fmt::format("its tokens have {} bits{} ({} of its 16-bit numbers {}): {}{}", 16 * parts,
                       is_little ? "" : " and are big-endian",
                       parts == 4 ? "three of four" : "every second",
                       above        ? "are small or 0"
                       : parts == 4 ? "are 0"
                                    : "is 0",
                       HowToGet16Bits(fmt::format("{}u{}", is_little ? '<' : '>', 2 * parts),
                                      /*offset=*/0, above),
                       kUnlessHeader);
  }
  const Bytes bytes = BytesOf(sample);
  if (bytes.different < kDifferent) return "";
  constexpr size_t kSmallByte = 16;
  if (bytes.greatest[0] < kSmallByte) {
    return fmt::format("its tokens are big-endian (the lower bytes are all below {}): {}{}",
                       kSmallByte, HowToGet16Bits(">u2", 0, /*above=*/false), kUnlessHeader);
  }
  const auto is_rare = [&](size_t count) { return count * 10 <= sample.size(); };
  const bool are_alike =
      2 * bytes.greatest[1] >= bytes.greatest[0] && 4 * bytes.upper_zeros <= 3 * sample.size();
  if (sample.size() >= 256 && are_alike && is_rare(bytes.high[0]) && is_rare(bytes.high[1])) {
    return fmt::format(
        "its tokens have 8 bits, or it is a text (upper and lower bytes are alike): {}; `lockstep "
        "prepare tokens` makes tokens of a text{}",
        HowToGet16Bits("u1", 0, /*above=*/false), kUnlessHeader);
  }
  return "";
}

}  // namespace lockstep
