#include "config/formats/formats.h"

#include <map>

#include "base/error.h"

namespace lockstep {

#define FORMAT(VALUE, Name) std::unique_ptr<const Format> New##Name();
#include "config/formats/formats.inc"
#undef FORMAT

namespace {

using Formats = std::map<config::Data::Format, std::unique_ptr<const Format>>;

const Formats& AllFormats() {
  static const Formats formats = [] {
    Formats all;
#define FORMAT(VALUE, Name) all.emplace(config::Data::VALUE, New##Name());
#include "config/formats/formats.inc"
#undef FORMAT
    return all;
  }();
  return formats;
}

}  // namespace

const Format& FormatOf(const config::Data& data) {
  const auto found = AllFormats().find(data.format());
  if (found == AllFormats().end()) {
    throw BugError("config/formats/formats.inc has no line for data.format {}", FormatName(data));
  }
  return *found->second;
}

bool HoldsTokens(const config::Data& data) {
  return PredictsTokens(data) || FormatOf(data).kind(data) == SampleKind::kTexts;
}

bool PredictsTokens(const config::Data& data) {
  return FormatOf(data).kind(data) == SampleKind::kTokens;
}

bool HoldsPixels(const config::Data& data) {
  return FormatOf(data).kind(data) == SampleKind::kPixels;
}

}  // namespace lockstep
