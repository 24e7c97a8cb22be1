#include "data/tables/csv_cells.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns the number of line breaks in `text`. `end` is the character that follows `text` in the file.
int64_t LineBreaksIn(std::string_view text, char end) {
  int64_t breaks = std::count(text.begin(), text.end(), '\n');
  for (size_t at = text.find('\r'); at != text.npos; at = text.find('\r', at + 1)) {
    const char next = at + 1 < text.size() ? text[at + 1] : end;
    if (next != '\n') ++breaks;
  }
  return breaks;
}

}  // namespace

CsvCells::CsvCells(const std::string& path, std::string_view content, char delimiter)
    : path_(path), delimiter_(delimiter) {
  if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) {
    throw DataError("{}: the text is UTF-16: save it as UTF-8", path);
  }
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  at_ = content.data();
  end_ = content.data() + content.size();
  for (const char c : {delimiter, '\n', '\r', '\0'})
    ends_cell_[static_cast<unsigned char>(c)] = true;
}

const char* CsvCells::SkipBlanks(const char* at) const {
  while (at != end_ && IsBlank(*at)) ++at;
  return at;
}

bool CsvCells::NextRow() {
  while (true) {
    const char* first = SkipBlanks(at_);
    if (first == end_) return false;
    if (*first != '\n' && *first != '\r') break;
    at_ = first;
    EndLine();
  }
  line_ = line_here_;
  row_ended_ = false;
  return true;
}

bool CsvCells::NextCell() {
  if (row_ended_) return false;
  line_ = line_here_;
  const char* first = SkipBlanks(at_);
  if (first != end_ && *first == '"') {
    ReadQuoted(first);
  } else {
    const char* last = first;
    while (last != end_ && !ends_cell_[static_cast<unsigned char>(*last)]) ++last;
    at_ = last;
    while (last != first && IsBlank(last[-1])) --last;
    cell_ = {first, last};
  }
  EndCell();
  return true;
}

void CsvCells::ReadQuoted(const char* open) {
  unquoted_.clear();
  const char* begin = open + 1;
  while (true) {
    const auto* quote = static_cast<const char*>(std::memchr(begin, '"', end_ - begin));
    if (quote == nullptr) {
      throw DataError("{}:{}: the quote that begins a cell here is never closed", path_, line_);
    }
    const bool doubled = quote + 1 != end_ && quote[1] == '"';
    cell_ = {begin, quote + (doubled ? 1 : 0)};
    if (doubled || !unquoted_.empty()) unquoted_ += cell_;
    if (!doubled) {
      at_ = SkipBlanks(quote + 1);
      break;
    }
    begin = quote + 2;
  }
  if (!unquoted_.empty()) cell_ = unquoted_;
  if (cell_.find('\0') != cell_.npos) {
    throw DataError("{}:{}: a zero byte: the file is no text, or UTF-16: save it as UTF-8", path_,
                    line_);
  }
  line_here_ += LineBreaksIn(cell_, '"');
}

// Skips the delimiter or the line break after a cell.
void CsvCells::EndCell() {
  if (at_ == end_) {
    row_ended_ = true;
  } else if (*at_ == delimiter_) {
    ++at_;
  } else if (*at_ == '\n' || *at_ == '\r') {
    row_ended_ = true;
    EndLine();
  } else if (*at_ == '\0') {
    throw DataError("{}:{}: a zero byte: the file is no text, or UTF-16: save it as UTF-8", path_,
                    line_here_);
  } else {
    throw DataError(
        "{}:{}: text behind a cell in quotes: a quote inside of it is to be written twice, \"\"",
        path_, line_here_);
  }
}

void CsvCells::EndLine() {
  at_ += *at_ == '\r' && at_ + 1 != end_ && at_[1] == '\n' ? 2 : 1;
  ++line_here_;
}

std::string_view TrimmedCell(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string AsCsvCell(const std::string& text, char delimiter) {
  const bool plain = text.find_first_of("\"\r\n") == text.npos &&
                     text.find(delimiter) == text.npos && TrimmedCell(text).size() == text.size();
  if (plain) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + '"';
}

}  // namespace lockstep
