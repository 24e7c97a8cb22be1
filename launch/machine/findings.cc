#include "launch/machine/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/round.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNames[] = {"ok", "warn", "fail"};

const char* NameOf(State state) { return kNames[static_cast<int>(state)]; }

Json ToJson(const Finding& finding) {
  Json json{{"check", finding.check}, {"state", NameOf(finding.state)}, {"figure", finding.figure}};
  if (!std::isnan(finding.value)) {
    json["value"] = Round(finding.value, 3);
    json["unit"] = finding.unit;
  }
  if (!finding.advice.empty()) json["advice"] = finding.advice;
  return json;
}

// Returns the beginning of a line about `ranks`, for example "rank 1: " or "ranks 0-3, 5: ".
std::string RanksText(const std::vector<size_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return fmt::format("rank{} {}: ", ranks.size() == 1 ? "" : "s", text);
}

// A finding, and the ranks that have it with the same state, figure and advice.
struct Group {
  Finding finding;
  std::vector<size_t> ranks;
};

// Returns the findings of one check, grouped by their content.
std::vector<Group> GroupsOf(const std::string& check,
                            const std::vector<std::vector<Finding>>& ranks) {
  std::vector<Group> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Finding& finding : ranks[rank]) {
      if (finding.check != check) continue;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
        return group.finding.state == finding.state && group.finding.figure == finding.figure &&
               group.finding.advice == finding.advice;
      });
      if (same != groups.end()) {
        same->ranks.push_back(rank);
      } else {
        groups.push_back({finding, {rank}});
      }
    }
  }
  return groups;
}

// If several groups are ok and have a value, removes all of these groups except the one with the least value.
void LeaveTheLeast(std::vector<Group>& groups) {
  const auto measured_well = [](const Group& group) {
    return group.finding.state == State::kOk && !std::isnan(group.finding.value);
  };
  const auto least =
      std::min_element(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
        return measured_well(a) > measured_well(b) ||
               (measured_well(a) && measured_well(b) && a.finding.value < b.finding.value);
      });
  const auto count = std::count_if(groups.begin(), groups.end(), measured_well);
  if (count < 2) return;
  Group kept = *least;
  kept.finding.figure += " (the least of all ranks)";
  std::erase_if(groups, measured_well);
  groups.insert(groups.begin(), kept);
}

}  // namespace

State StateOf(double value, double most, double least) {
  return most > 0 && value < least * most ? State::kWarn : State::kOk;
}

std::string ToText(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const Finding& finding : findings) all.push_back(ToJson(finding));
  return all.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::vector<Finding> FromText(const std::string& text) {
  std::vector<Finding> findings;
  for (const Json& json : Json::parse(text)) {
    const auto* const name =
        std::find(std::begin(kNames), std::end(kNames), json.at("state").get<std::string>());
    findings.push_back({.check = json.at("check"),
                        .state = static_cast<State>(name - kNames),
                        .figure = json.at("figure"),
                        .advice = json.value("advice", ""),
                        .value = json.value("value", std::numeric_limits<double>::quiet_NaN()),
                        .unit = json.value("unit", "")});
  }
  return findings;
}

std::string Report(const std::vector<std::vector<Finding>>& ranks) {
  std::vector<std::string> checks;
  for (const auto& findings : ranks) {
    for (const Finding& finding : findings) {
      if (std::find(checks.begin(), checks.end(), finding.check) == checks.end()) {
        checks.push_back(finding.check);
      }
    }
  }
  std::string report;
  std::map<State, int> counts;
  for (const std::string& check : checks) {
    std::vector<Group> groups = GroupsOf(check, ranks);
    LeaveTheLeast(groups);
    for (const auto& [finding, of] : groups) {
      ++counts[finding.state];
      const bool of_all = of.size() == ranks.size() || (groups.size() == 1 && of[0] == 0);
      report += fmt::format("{:<4}  {:<12}  {}{}{}{}\n", NameOf(finding.state), finding.check,
                            of_all ? "" : RanksText(of), finding.figure,
                            finding.advice.empty() ? "" : ": ", finding.advice);
    }
  }
  report += fmt::format("{} ok, {} warn, {} fail\n", counts[State::kOk], counts[State::kWarn],
                        counts[State::kFail]);
  return report;
}

std::string JsonReport(const std::vector<std::vector<Finding>>& ranks) {
  std::string report;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Finding& finding : ranks[rank]) {
      Json json = ToJson(finding);
      json["rank"] = rank;
      report += json.dump() + "\n";
    }
  }
  return report;
}

State WorstOf(const std::vector<std::vector<Finding>>& ranks) {
  State worst = State::kOk;
  for (const auto& findings : ranks) {
    for (const Finding& finding : findings) worst = std::max(worst, finding.state);
  }
  return worst;
}

}  // namespace lockstep
