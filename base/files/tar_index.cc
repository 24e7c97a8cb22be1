#include "base/files/tar_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/tar_format.h"

namespace lockstep {
namespace {

// The maximum size of a long name or of a member's pax records, in bytes. It is far more than the longest path of any
// system.
constexpr int64_t kLongestRecords = int64_t{1} << 20;

const char* CompressionOf(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return "gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return "zstd";
  if (bytes.starts_with("\xfd"
                        "7zXZ"))
    return "xz";
  if (bytes.starts_with("BZh")) return "bzip2";
  if (bytes.starts_with("\x04\x22\x4d\x18")) return "lz4";
  return nullptr;
}

// A file, a folder or a link of the archive.
struct Entry {
  enum Kind { kFile, kFolder, kHardLink, kSymbolicLink };

  Kind kind;
  std::string_view name;    // as in TarMember
  std::string_view target;  // the path that a link holds
  int64_t offset;           // where a file's bytes begin; of other entries: where they would
  int64_t bytes;
};

using VisitEntry = std::function<void(const Entry&)>;

class Walk {
 public:
  Walk(const ReadableFile& archive, const VisitEntry& visit) : archive_(archive), visit_(visit) {}

  void Run() {
    if (archive_.bytes() == 0) throw DataError("{}: empty file", archive_.path());
    while (true) {
      const std::string_view header = Block();
      if (header.find_first_not_of('\0') == header.npos) {
        if (has_records_) throw Damaged("the archive ends where a member should follow its name");
        return;
      }
      CheckChecksum(header);
      Take(header);
    }
  }

 private:
  Error Damaged(std::string_view what) const {
    return DataError("{}: byte {}: {}", archive_.path(), at_, what);
  }

  Error CutShort(std::string_view what) const {
    return DataError("{}: byte {}: {}: the archive is cut short at {} bytes", archive_.path(), at_,
                     what, archive_.bytes());
  }

  // Returns the block of 512 bytes that begins at the offset at_ of the archive.
  std::string_view Block() {
    if (at_ < window_at_ || at_ + kTarBlock > window_at_ + window_bytes_) {
      window_at_ = at_;
      window_bytes_ =
          static_cast<int64_t>(archive_.ReadAt(at_, std::as_writable_bytes(std::span(window_))));
    }
    const std::string_view there(&window_[at_ - window_at_],
                                 std::min(kTarBlock, window_at_ + window_bytes_ - at_));
    if (at_ == 0) {
      if (const char* compression = CompressionOf(there)) {
        throw DataError("{}: compressed with {}: decompress it (images do not get smaller)",
                        archive_.path(), compression);
      }
    }
    if (there.size() < kTarBlock) {
      throw CutShort("a member's header or the end mark, a block of zeros, should be here");
    }
    return there;
  }

  static std::string_view TextOf(std::string_view header, TarField field) {
    const std::string_view text = header.substr(field.at, field.length);
    return text.substr(0, text.find('\0'));
  }

  // Parses octal digits or, if the first bit of the field is set, a big-endian binary number (GNU's base
  // 256). Returns nothing if the field is not a number or the number is too large.
  static std::optional<int64_t> ParseNumber(std::string_view header, TarField field) {
    std::string_view text = header.substr(field.at, field.length);
    if ((static_cast<unsigned char>(text[0]) & 0x80) != 0) {
      uint64_t number = static_cast<unsigned char>(text[0]) & 0x7f;
      for (const char byte : text.substr(1)) {
        if (number >> 55 != 0) return std::nullopt;
        number = number << 8 | static_cast<unsigned char>(byte);
      }
      return static_cast<int64_t>(number);
    }
    text = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    text = text.substr(0, text.find(' '));
    if (text.empty()) return 0;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
    const bool whole = error == std::errc() && end == text.data() + text.size() && number >= 0;
    return whole ? std::optional(number) : std::nullopt;
  }

  int64_t SizeOf(std::string_view header) const {
    const std::optional<int64_t> size = ParseNumber(header, kTarSize);
    if (!size) throw Damaged("a member's size is no number, or larger than any file");
    return *size;
  }

  void CheckChecksum(std::string_view header) const {
    // Some old programs computed the checksum from signed bytes, so both sums are accepted.
    int64_t sum = 0, signed_sum = 0;
    for (size_t i = 0; i < header.size(); ++i) {
      const bool blank = i >= kTarChecksum.at && i < kTarChecksum.at + kTarChecksum.length;
      const char byte = blank ? ' ' : header[i];
      sum += static_cast<unsigned char>(byte);
      signed_sum += static_cast<signed char>(byte);
    }
    const std::optional<int64_t> expected = ParseNumber(header, kTarChecksum);
    if (expected == sum || expected == signed_sum) return;
    if (at_ == 0) throw DataError("{}: no tar archive", archive_.path());
    throw Damaged("a member's header is damaged: its checksum does not match");
  }

  // Returns the `bytes` bytes after the header at at_. These bytes describe the next member.
  std::string Records(int64_t bytes) const {
    if (bytes > kLongestRecords) throw Damaged(fmt::format("a name of {} bytes", bytes));
    std::string records(bytes, '\0');
    const size_t got = archive_.ReadAt(at_ + kTarBlock, std::as_writable_bytes(std::span(records)));
    if (got < records.size()) throw CutShort("a member's long name should follow");
    return records;
  }

  // Reads records of the form "LENGTH KEY=VALUE\n", in which LENGTH is the length of the whole record.
  void ReadPax(std::string_view records) {
    while (!records.empty()) {
      size_t length = 0;
      const char* const end = records.data() + records.size();
      const auto [space, error] = std::from_chars(records.data(), end, length);
      const auto digits = static_cast<size_t>(space - records.data());
      if (error != std::errc() || space == end || *space != ' ' || length > records.size() ||
          length < digits + 2 || records[length - 1] != '\n') {
        throw Damaged("a pax record is damaged");
      }
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == record.npos) throw Damaged("a pax record is damaged");
      ApplyPax(record.substr(0, equals), record.substr(equals + 1));
    }
  }

  void ApplyPax(std::string_view key, std::string_view value) {
    if (key.starts_with("GNU.sparse.")) is_sparse_ = true;
    if (key == "path" && !value.empty()) name_ = value;
    if (key == "linkpath" && !value.empty()) target_ = value;
    if (key != "size" || value.empty()) return;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size() || size < 0) {
      throw Damaged("a pax record holds no size");
    }
    size_ = size;
  }

  void Take(std::string_view header) {
    const char type = header[kTarType.at];
    if (type == 'x' || type == 'L' || type == 'K') {
      const int64_t bytes = SizeOf(header);
      const std::string records = Records(bytes);
      const auto keep = [&](std::optional<std::string>& text) {
        if (!text) text = records.substr(0, records.find('\0'));  // a pax record has precedence
      };
      if (type == 'x') {
        ReadPax(records);
      } else {
        keep(type == 'L' ? name_ : target_);
      }
      has_records_ = true;
      Pass(bytes);
      return;
    }
    // A member of the type 'g' describes the whole archive, so the records of the next member do not apply to it.
    const bool apart = type == 'g';
    const std::string name = apart || !name_ ? NameOf(header) : *name_;
    const bool is_file = type == '0' || type == '7' || (type == '\0' && !name.ends_with('/'));
    const bool has_no_bytes = (type >= '1' && type <= '6') || (type == '\0' && !is_file);
    const int64_t bytes = has_no_bytes ? 0 : apart || !size_ ? SizeOf(header) : *size_;
    if (type == 'S' || (is_file && is_sparse_)) {
      throw DataError("{}: {}: a sparse file: make the archive without --sparse", archive_.path(),
                      name);
    }
    if (bytes > archive_.bytes() - at_ - kTarBlock) {
      throw CutShort(fmt::format("{} should have {} bytes", name, bytes));
    }
    if (is_file) {
      Visit(Entry::kFile, name, "", bytes);
    } else if (type == '5' || type == '\0') {
      Visit(Entry::kFolder, name, "", 0);
    } else if (type == '1' || type == '2') {
      Visit(type == '1' ? Entry::kHardLink : Entry::kSymbolicLink, name,
            target_ ? *target_ : std::string(TextOf(header, kTarLink)), 0);
    }
    Pass(bytes);
    if (apart) return;
    name_.reset();
    target_.reset();
    size_.reset();
    has_records_ = is_sparse_ = false;
  }

  static std::string NameOf(std::string_view header) {
    const std::string_view name = TextOf(header, kTarName);
    const bool posix =
        header.substr(kTarMagic.at, kTarMagic.length) == std::string_view("ustar\0", 6);
    const std::string_view prefix = posix ? TextOf(header, kTarPrefix) : "";
    return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  }

  void Visit(Entry::Kind kind, std::string_view name, std::string_view target,
             int64_t bytes) const {
    for (const std::string_view text : {name, target}) {
      if (text.find('\0') != text.npos) throw Damaged("a member's name holds a zero byte");
    }
    while (name.starts_with("./") || name.starts_with('/'))
      name.remove_prefix(name[0] == '.' ? 2 : 1);
    visit_({kind, name, target, at_ + kTarBlock, bytes});
  }

  // Moves at_ past the header at at_ and the whole blocks of the `bytes` bytes after it.
  void Pass(int64_t bytes) { at_ += kTarBlock + WholeTarBlocks(bytes); }

  const ReadableFile& archive_;
  const VisitEntry& visit_;
  int64_t at_ = 0;
  std::array<char, 16 * kTarBlock> window_{};
  int64_t window_at_ = 0;
  int64_t window_bytes_ = 0;

  // These five members hold what the records before the next member say about that member.
  bool has_records_ = false;
  bool is_sparse_ = false;
  std::optional<std::string> name_;
  std::optional<std::string> target_;
  std::optional<int64_t> size_;
};

// Returns the path of an entry without ".", ".." and slashes at its ends, so that paths can be compared. A path that
// leads out of the archive keeps its "..".
std::string NormalPath(std::string_view path) {
  std::string normal = std::filesystem::path(path).lexically_normal().native();
  while (normal.ends_with('/')) normal.pop_back();
  return normal;
}

// All entries of an archive, by which links are followed.
class Listing {
 public:
  explicit Listing(const ReadableFile& archive) {
    const VisitEntry add = [&](const Entry& entry) {
      std::string path = NormalPath(entry.name);
      if (entry.kind == Entry::kHardLink || entry.kind == Entry::kSymbolicLink) {
        links_[path] = TargetOf(entry);
      } else if (entry.kind == Entry::kFile) {
        files_[path].push_back({.offset = entry.offset, .bytes = entry.bytes});
      }
      if (entry.kind == Entry::kFolder) folders_.insert(path);
      for (size_t slash = path.rfind('/'); slash != path.npos; slash = path.rfind('/')) {
        path.resize(slash);
        if (!folders_.insert(path).second) break;
      }
    };
    Walk(archive, add).Run();
  }

  // Follows `link`.
  TarMember Follow(const Entry& link) const {
    // There is no longer chain of links in a sound archive: as many links are followed as Linux follows.
    constexpr int kMostLinks = 40;
    TarMember member{.kind = TarMember::kLinkToNothing, .name = link.name, .target = link.target};
    std::string path = TargetOf(link);
    for (int i = 0; i < kMostLinks; ++i) {
      if (const auto file = files_.find(path); file != files_.end()) {
        const Place place = PlaceFor(link, file->second);
        member.kind = TarMember::kLinkToFile;
        member.offset = place.offset;
        member.bytes = place.bytes;
        return member;
      }
      if (path == "." || folders_.contains(path)) {
        member.kind = TarMember::kLinkToFolder;
        return member;
      }
      const auto next = links_.find(path);
      if (next == links_.end()) return member;
      path = next->second;
    }
    return member;
  }

 private:
  struct Place {
    int64_t offset;
    int64_t bytes;
  };

  // Returns the path that a link leads to. The path of a hard link begins at the archive's root, and that of a symbolic
  // link at the link's folder.
  static std::string TargetOf(const Entry& link) {
    if (link.kind == Entry::kSymbolicLink) {
      return NormalPath((std::filesystem::path(link.name).parent_path() / link.target).native());
    }
    std::string_view target = link.target;
    while (target.starts_with('/')) target.remove_prefix(1);
    return NormalPath(target);
  }

  // Returns the place of the file that the link meant if there are several files of one name: for a hard link the last
  // one before the link, which the program that wrote the archive had seen, and otherwise the last one.
  static Place PlaceFor(const Entry& link, const std::vector<Place>& places) {
    if (link.kind == Entry::kHardLink) {
      for (size_t i = places.size(); i-- > 0;) {
        if (places[i].offset < link.offset) return places[i];
      }
    }
    return places.back();
  }

  std::unordered_map<std::string, std::vector<Place>> files_;
  std::unordered_map<std::string, std::string> links_;  // where each link leads to
  std::unordered_set<std::string> folders_;
};

}  // namespace

void VisitTar(const ReadableFile& archive, const std::function<void(const TarMember&)>& visit) {
  std::optional<Listing> listing;
  const VisitEntry pass = [&](const Entry& entry) {
    if (entry.kind == Entry::kFile) {
      visit({.name = entry.name, .offset = entry.offset, .bytes = entry.bytes});
    } else if (entry.kind != Entry::kFolder) {
      if (!listing) listing.emplace(archive);
      visit(listing->Follow(entry));
    }
  };
  Walk(archive, pass).Run();
}

}  // namespace lockstep
