// Finds the delimiter of a CSV file: a comma, a semicolon, a tab or a bar.
//
// Promise: a file that a spreadsheet of another language has written is read with the delimiter that it has. If it is
// known how the first row must look, as for the files of a trained run, FittingDelimiter() compares the first row with
// that. FindDelimiter() looks only at the first rows: the candidates are the delimiters with which all of these rows
// have the same number of cells, which is at least two. The candidate with the most numbers in these rows is chosen.
// Among candidates with as many numbers this is the one with the fewest other cells or, if there are no numbers, with
// the most cells. If there is no candidate, the delimiter with which the first row has the most cells is chosen; if
// each of the four gives one cell, the comma is chosen.
//
// what can fail -> nothing: the reader of the cells reports what is wrong with a file. The tests are in
// data/tables/csv_delimiter_test.cc
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using CsvRowOfTexts = std::vector<std::string>;

// Returns the first `most` rows of a CSV file's text, with at most 4096 bytes of each cell. `path` is for errors. Throws
// Error (kData) if a row has more than 65,536 cells.
std::vector<CsvRowOfTexts> FirstRows(const std::string& path, std::string_view text, char delimiter,
                                     size_t most);

// Throws Error (kData) if a row of a file has more than 65,536 columns, because the texts of its cells would take much
// memory.
void RequireFewColumns(const std::string& path, int64_t line, size_t columns);

// Returns the delimiter that the first rows of a file's text suggest.
char FindDelimiter(const std::string& path, std::string_view text);

// Returns the delimiter of a file's text. `fit` says of the first row how well it fits what is known of the file: 0 is
// not at all, and 1 leaves no doubt. `expected` is the delimiter of the run's other files, which is taken if the first
// row then fits without doubt, or fits with no delimiter. Otherwise the delimiter that fits best is taken, and among
// equals that of FindDelimiter().
char FittingDelimiter(const std::string& path, std::string_view text, char expected,
                      const std::function<double(const CsvRowOfTexts& first_row)>& fit);

// Returns the share of `names` that are in `row`; 0 if there are no names.
double ShareOfNames(const std::vector<std::string>& names, const CsvRowOfTexts& row);

// Returns the delimiter in words, for messages: "comma".
std::string NameOfDelimiter(char delimiter);

}  // namespace lockstep
