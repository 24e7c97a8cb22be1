#include "data/images/image_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/files/xxh3.h"

namespace lockstep {
namespace {

constexpr std::array<char, 8> kMagic{'L', 'S', 'I', 'M', 'A', 'G', 'E', 'S'};
constexpr uint32_t kVersion = 5;
constexpr size_t kAlignment = 8;

// The pieces of an index file after its header, in their order in the file.
enum Piece {
  kKey,
  kSourceEnds,
  kSourceText,
  kStamps,
  kLeftOutEnds,
  kLeftOutText,
  kClassEnds,  // the first piece of the content; the pieces before it are the facts
  kClassText,
  kFirstOfClass,
  kPathEnds,
  kPathText,
  kPlaces,
  kLabels,
  kNothing,  // always empty; makes the header's size a multiple of 16
  kPieces
};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  ImageLayout layout = ImageLayout::kFolders;
  uint64_t facts_hash = 0;    // the XXH3 of the header (with 0 in this field) and the facts
  uint64_t content_hash = 0;  // the XXH3 of the content
  std::array<uint64_t, kPieces> bytes{};
};
static_assert(sizeof(Header) == 144);
static_assert(sizeof(Stamp) == 24 && sizeof(ImagePlace) == 16);

// Returns the zeros that follow a piece of `bytes` bytes, so that the next piece is aligned.
std::span<const std::byte> PaddingOf(size_t bytes) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  return std::span(kZeros).first((kAlignment - bytes % kAlignment) % kAlignment);
}

// Calls `add` with each piece and then with its padding, in the order in which they lie in a file.
template <typename Add>
void ForEach(std::span<const std::span<const std::byte>> pieces, const Add& add) {
  for (const std::span<const std::byte> piece : pieces) {
    add(piece);
    add(PaddingOf(piece.size()));
  }
}

void AddHeader(Header header, Xxh3& hash) {
  header.facts_hash = 0;
  hash.Add(std::as_bytes(std::span(&header, 1)));
}

void AddPieces(std::span<const std::span<const std::byte>> pieces, Xxh3& hash) {
  ForEach(pieces, [&](std::span<const std::byte> bytes) { hash.Add(bytes); });
}

template <typename T>
std::span<const T> As(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ImageIndex::ImageIndex(ImageColumns columns)
    : columns_(std::make_shared<ImageColumns>(std::move(columns))),
      layout_(columns_->layout),
      sources_(columns_->sources.view()),
      left_out_(columns_->left_out.view()),
      stamps_(columns_->stamps),
      classes_(columns_->classes.view()),
      first_of_class_(columns_->first_of_class),
      paths_(columns_->paths.view()),
      places_(columns_->places),
      labels_(columns_->labels) {
  const Pieces pieces = PiecesOf("");
  Xxh3 content;
  AddPieces(std::span(pieces).subspan(kClassEnds), content);
  content_hash_ = content.value();
}

ImageIndex::Pieces ImageIndex::PiecesOf(std::string_view key) const {
  static_assert(std::tuple_size_v<Pieces> == kPieces);
  Pieces pieces;
  pieces[kKey] = std::as_bytes(std::span(key));
  pieces[kSourceEnds] = std::as_bytes(sources_.ends);
  pieces[kSourceText] = std::as_bytes(std::span(sources_.text));
  pieces[kStamps] = std::as_bytes(stamps_);
  pieces[kLeftOutEnds] = std::as_bytes(left_out_.ends);
  pieces[kLeftOutText] = std::as_bytes(std::span(left_out_.text));
  pieces[kClassEnds] = std::as_bytes(classes_.ends);
  pieces[kClassText] = std::as_bytes(std::span(classes_.text));
  pieces[kFirstOfClass] = std::as_bytes(first_of_class_);
  pieces[kPathEnds] = std::as_bytes(paths_.ends);
  pieces[kPathText] = std::as_bytes(std::span(paths_.text));
  pieces[kPlaces] = std::as_bytes(places_);
  pieces[kLabels] = std::as_bytes(labels_);
  return pieces;
}

void ImageIndex::Write(std::string_view key,
                       const std::function<void(std::span<const std::byte>)>& write) const {
  const Pieces pieces = PiecesOf(key);
  Header header{.layout = layout_, .content_hash = content_hash_};
  for (size_t i = 0; i < kPieces; ++i) header.bytes[i] = pieces[i].size();
  Xxh3 facts;
  AddHeader(header, facts);
  AddPieces(std::span(pieces).first(kClassEnds), facts);
  header.facts_hash = facts.value();
  write(std::as_bytes(std::span(&header, 1)));
  ForEach(pieces, write);
}

std::optional<ImageIndex> ImageIndex::FromFile(MappedFile file, std::string_view key) {
  auto owner = std::make_shared<MappedFile>(std::move(file));
  std::span<const std::byte> rest =
      std::as_bytes(std::span(owner->data(), static_cast<size_t>(owner->bytes())));
  Header header;
  if (rest.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, rest.data(), sizeof(header));
  if (header.magic != kMagic || header.version != kVersion) return std::nullopt;
  rest = rest.subspan(sizeof(header));
  Pieces pieces;
  const std::span<const std::byte> all = rest;
  size_t facts_bytes = 0;
  for (size_t i = 0; i < kPieces; ++i) {
    if (i == kClassEnds) facts_bytes = all.size() - rest.size();
    const uint64_t bytes = header.bytes[i];
    if (bytes > rest.size() || PaddingOf(bytes).size() > rest.size() - bytes) return std::nullopt;
    pieces[i] = rest.first(bytes);
    rest = rest.subspan(bytes + PaddingOf(bytes).size());
  }
  if (!rest.empty() || AsText(pieces[kKey]) != key) return std::nullopt;
  Xxh3 facts, content;
  AddHeader(header, facts);
  facts.Add(all.first(facts_bytes));
  content.Add(all.subspan(facts_bytes));
  if (facts.value() != header.facts_hash || content.value() != header.content_hash) {
    return std::nullopt;
  }

  ImageIndex index;
  index.file_ = std::move(owner);
  index.layout_ = header.layout;
  index.sources_ = {As<uint64_t>(pieces[kSourceEnds]), AsText(pieces[kSourceText])};
  index.stamps_ = As<Stamp>(pieces[kStamps]);
  index.left_out_ = {As<uint64_t>(pieces[kLeftOutEnds]), AsText(pieces[kLeftOutText])};
  index.classes_ = {As<uint64_t>(pieces[kClassEnds]), AsText(pieces[kClassText])};
  index.first_of_class_ = As<uint64_t>(pieces[kFirstOfClass]);
  index.paths_ = {As<uint64_t>(pieces[kPathEnds]), AsText(pieces[kPathText])};
  index.places_ = As<ImagePlace>(pieces[kPlaces]);
  index.labels_ = As<int32_t>(pieces[kLabels]);
  index.content_hash_ = header.content_hash;
  return index;
}

std::string ImageIndex::PathWithClass(int64_t sample) const {
  const int64_t c = ClassOf(sample);
  return c < classes().size() ? fmt::format("{}/{}", classes()[c], path(sample))
                              : std::string(path(sample));
}

int64_t ImageIndex::ClassOf(int64_t sample) const {
  const auto next = std::upper_bound(first_of_class_.begin(), first_of_class_.end(),
                                     static_cast<uint64_t>(sample));
  return next - first_of_class_.begin() - 1;
}

int64_t ImageIndex::FirstOf(int64_t c) const {
  return c < static_cast<int64_t>(first_of_class_.size()) ? static_cast<int64_t>(first_of_class_[c])
                                                          : size();
}

}  // namespace lockstep
