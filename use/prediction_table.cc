#include "use/prediction_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "data/tables/csv_cells.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr size_t kPiece = size_t{1} << 20;  // bytes of the file that are written at once

// Calls add(text, row) for each row, and writes the text in pieces.
template <typename Add>
void WriteRows(int64_t rows, std::string text, const AppendBytes& append, const Add& add) {
  const auto flush = [&] {
    append(std::as_bytes(std::span(text)));
    text.clear();
  };
  for (int64_t row = 0; row < rows; ++row) {
    add(text, row);
    if (text.size() >= kPiece) flush();
  }
  flush();
}

// Returns `text` as a JSON string. Bytes that are not valid UTF-8 become U+FFFD.
std::string InQuotes(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonOf(const PredictionColumn& column, const std::string& cell) {
  switch (column.kind) {
    case PredictionColumn::Kind::kText:
      break;
    case PredictionColumn::Kind::kNumber:
      return std::isfinite(std::strtod(cell.c_str(), nullptr)) ? cell : "null";
    case PredictionColumn::Kind::kCopied:
      if (Json::parse(cell, nullptr, /*allow_exceptions=*/false).is_number()) return cell;
      break;
  }
  return InQuotes(cell);
}

std::string_view PrefixOf(PredictionColumn::Owner owner) {
  switch (owner) {
    case PredictionColumn::Owner::kProgram:
      break;  // these names differ
    case PredictionColumn::Owner::kClass:
      return "probability_";
    case PredictionColumn::Owner::kInput:
      return "input_";
  }
  return "_";
}

}  // namespace

std::vector<std::string> MakeNamesDiffer(std::vector<PredictionColumn>& columns) {
  using Owner = PredictionColumn::Owner;
  std::vector<std::string> lines;
  std::set<std::string> taken;
  for (const Owner owner : {Owner::kProgram, Owner::kClass, Owner::kInput}) {
    // The columns whose names are free keep them; only then the others get new names.
    std::vector<PredictionColumn*> late;
    for (PredictionColumn& column : columns) {
      if (column.owner == owner && !taken.insert(column.name).second) late.push_back(&column);
    }
    for (PredictionColumn* column : late) {
      const std::string before = column->name;
      do {
        column->name.insert(0, PrefixOf(owner));
      } while (!taken.insert(column->name).second);
      lines.push_back(
          fmt::format("the {} \"{}\" is written as \"{}\", because another column has its name",
                      owner == Owner::kClass ? "class" : "input's column", before, column->name));
    }
  }
  return lines;
}

void WriteCsv(const PredictionTable& table, char delimiter, const AppendBytes& append) {
  std::string header;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (i > 0) header += delimiter;
    header += AsCsvCell(table.columns[i].name, delimiter);
  }
  WriteRows(table.rows, header + '\n', append, [&](std::string& text, int64_t row) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (i > 0) text += delimiter;
      text += AsCsvCell(table.columns[i].cell(row), delimiter);
    }
    text += '\n';
  });
}

void WriteJsonLines(const PredictionTable& table, const AppendBytes& append) {
  std::vector<std::string> names;
  for (const PredictionColumn& column : table.columns) names.push_back(InQuotes(column.name));
  WriteRows(table.rows, "", append, [&](std::string& text, int64_t row) {
    for (size_t i = 0; i < names.size(); ++i) {
      const PredictionColumn& column = table.columns[i];
      text +=
          fmt::format("{}{}: {}", i == 0 ? "{" : ", ", names[i], JsonOf(column, column.cell(row)));
    }
    text += "}\n";
  });
}

}  // namespace lockstep
