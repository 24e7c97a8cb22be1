#include "observe/metric_order.h"

#include <algorithm>
#include <iterator>

#include "base/best_so_far.h"

namespace lockstep {
namespace {

enum Better { kLess, kMore };
enum Told { kBrief, kLogged };

struct Entry {
  std::string_view name;
  Better better;
  Told told;
};

constexpr Entry kEntries[] = {
#define METRIC(name, better, told, has, value) {name, better, told},
#include "observe/metrics.inc"
#undef METRIC
};

constexpr std::string_view kValidation = "val_";

const Entry* Find(std::string_view name) {
  const Entry* entry = std::ranges::find(kEntries, name, &Entry::name);
  return entry == std::end(kEntries) ? nullptr : entry;
}

}  // namespace

bool GreaterIsBetter(std::string_view name) {
  const Entry* entry = Find(name);
  return entry != nullptr && entry->better == kMore;
}

bool IsBrief(std::string_view name) {
  const Entry* entry = Find(name);
  return entry != nullptr && entry->told == kBrief;
}

bool IsBriefFigure(std::string_view figure) {
  return !figure.starts_with(kValidation) || IsBrief(figure.substr(kValidation.size()));
}

bool GreaterFigureIsBetter(std::string_view figure) {
  return figure.starts_with(kValidation) && GreaterIsBetter(figure.substr(kValidation.size()));
}

bool IsBetter(std::string_view figure, double value, double than) {
  return Beats(value, than, GreaterFigureIsBetter(figure));
}

}  // namespace lockstep
