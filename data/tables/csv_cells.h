// CsvCells: reads the cells of a CSV file in order. Each cell is a view into the file's text.
//
// Promise: CsvCells finds the cells that RFC 4180 defines and that Python's csv.reader finds. A cell in quotes may hold
// delimiters and line breaks, and two quotes stand for one quote. A line ends in \n, \r\n or \r, and the last line may
// have no line end. In addition, blank lines are not rows, spaces and tabs around a cell or its quotes do not belong to
// the cell, and a byte order mark of UTF-8 at the beginning is skipped. Other bytes stay as they are.
//
// Invariants:
//   1. Each byte is read once or twice, however long the lines and rows are. Only the text of a quoted cell that
//      contains quotes is copied.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_test.cc)
//   a quote that is never closed, text after a closing quote -> Error (kData) with path and line
//     -> CsvCells.RefusesAQuoteThatNeverCloses, CsvCells.RefusesTextBehindAQuotedCell
//   UTF-16, zero bytes -> Error (kData) with path and, for a zero byte, line -> CsvCells.RefusesWhatIsNoText
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class CsvCells {
 public:
  // Keeps references to `path`, which is for error messages, and to `content`. Throws Error (kData).
  CsvCells(const std::string& path, std::string_view content, char delimiter);

  // Moves to the next row. All cells of the current row must have been read, so that NextCell() has returned false.
  // Returns false if there are no more rows.
  bool NextRow();

  // Moves to the next cell of the row. Each row has at least one cell. Returns false if the row has no more cells.
  // Throws Error (kData).
  bool NextCell();

  // Returns the text of the cell, which is valid until the next call of NextCell().
  std::string_view cell() const { return cell_; }

  // Returns the number, from 1, of the line in which the cell begins or, after NextRow(), in which the row begins.
  int64_t line() const { return line_; }

 private:
  bool IsBlank(char c) const { return (c == ' ' || c == '\t') && c != delimiter_; }
  const char* SkipBlanks(const char* at) const;
  void EndLine();
  void ReadQuoted(const char* open);
  void EndCell();

  const std::string& path_;
  const char* at_;
  const char* end_;
  char delimiter_;
  std::array<bool, 256> ends_cell_{};
  bool row_ended_ = true;
  int64_t line_ = 1;       // the line of the cell
  int64_t line_here_ = 1;  // the line of the text after the cell
  std::string_view cell_;
  std::string unquoted_;  // the cell's text, if it differs from the bytes in the file
};

// Returns `text` without the spaces and tabs around it.
std::string_view TrimmedCell(std::string_view text);

// Returns `text` as a cell of a CSV file, in quotes if `text` needs quotes.
std::string AsCsvCell(const std::string& text, char delimiter);

}  // namespace lockstep
