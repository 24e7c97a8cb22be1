#include "launch/cli/training/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/say.h"
#include "config/config.h"
#include "launch/cli/command/table.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

Tuning::Tuning(const TuneOptions& options, std::vector<std::string> command)
    : options_(options),
      text_(ReadConfigText(options.path)),
      users_config_(LoadConfigText(options.path, text_, options.assignments)),
      config_(users_config_),
      runner_(std::move(command), std::filesystem::absolute(config_.run_dir()).parent_path(),
              SecondsSinceBoot() + options.time_s) {}

config::Config Tuning::With(const Setting& setting) const {
  std::vector<std::string> assignments = options_.assignments;
  for (const FieldEdit& edit : edits_) assignments.push_back(edit.name + "=" + edit.value);
  for (const FieldValue& field : setting) assignments.push_back(field.name + "=" + field.value);
  return LoadConfigText(options_.path, text_, assignments);
}

void Tuning::Adopt(const FieldEdit& edit) {
  const auto known = std::ranges::find(edits_, edit.name, &FieldEdit::name);
  if (known == edits_.end()) {
    edits_.push_back(edit);
  } else {
    *known = edit;
  }
  config_ = With({});
}

void Tuning::PrintLine(const Json& line) {
  Print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

void Tuning::PrintNothing(const std::string& what, const std::string& why) const {
  if (options_.json) {
    PrintLine({{"suggestion", nullptr}, {"for", what}, {"reason", why}});
  } else {
    Print("\nnothing is suggested for {}: {}\n\n", what, why);
  }
}

std::string Tuning::MoreTime(const std::string& before) const {
  return fmt::format("{}the time was over before all was tried: --time {}", before,
                     4 * options_.time_s);
}

std::string RateText(double rate) { return fmt::format("{:.3g}", rate); }

std::string SpeedText(double samples_per_s) {
  return samples_per_s < 1000 ? FigureText(samples_per_s) : fmt::format("{:.1f}", samples_per_s);
}

}  // namespace lockstep
