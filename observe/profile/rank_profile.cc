#include "observe/profile/rank_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <set>

#include "observe/profile/trace_places.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr double kUsPerMs = 1e3;
constexpr size_t kMostRows = 100;

template <typename Object>
std::string Text(const Object& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_string() ? value->template get<std::string>()
                                                     : std::string();
}

template <typename Object>
double Number(const Object& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_number() ? value->template get<double>() : 0;
}

// A call of a kernel, or of an operation on a CPU.
struct Call {
  double begin_us = 0, us = 0;
  const Json* event = nullptr;
};

// Returns the calls in the profiled steps, or all calls of a trace that does not say where steps begin.
std::vector<Call> CallsOf(const Json& trace, bool on_gpu) {
  std::vector<Call> all;
  std::vector<Call> in_steps;
  for (const Json& event : trace["traceEvents"]) {
    const auto arguments = event.find("args");
    if (arguments == event.end() || !event.contains("ts") || !event.contains("dur")) continue;
    if (on_gpu && !IsDeviceWork(event)) continue;
    if (!on_gpu && !arguments->contains("self_us")) continue;
    const Call call{Number(event, "ts"),
                    on_gpu ? Number(event, "dur") : Number(*arguments, "self_us"), &event};
    all.push_back(call);
    if (arguments->contains("step")) in_steps.push_back(call);
  }
  return in_steps.empty() ? all : in_steps;
}

// Returns for how long at least one of the calls was running, in microseconds. An operation runs while the operations
// nested in it run.
double BusyUs(std::vector<Call> calls) {
  std::ranges::sort(calls, {}, &Call::begin_us);
  double busy = 0;
  double until = -std::numeric_limits<double>::infinity();
  for (const Call& call : calls) {
    const double end = call.begin_us + Number(*call.event, "dur");
    busy += std::max(0.0, end - std::max(until, call.begin_us));
    until = std::max(until, end);
  }
  return busy;
}

// Returns the parts of a module's name, with numbers replaced by "*", so that all layers of a model get the same name.
std::vector<std::string> PartsOf(const std::string& module) {
  std::vector<std::string> parts{""};
  for (size_t i = 0; i < module.size(); ++i) {
    if (module[i] == '.') {
      parts.emplace_back();
    } else if (std::isdigit(static_cast<unsigned char>(module[i])) == 0) {
      parts.back() += module[i];
    } else if (!parts.back().ends_with('*')) {
      parts.back() += '*';
    }
  }
  return parts;
}

// Returns the parts with which the names of all modules begin. Calls outside of any module do not count.
std::string CommonName(std::set<std::string> modules) {
  modules.erase("");
  if (modules.size() == 1) return *modules.begin();
  std::vector<std::string> common;
  for (const std::string& module : modules) {
    const std::vector<std::string> parts = PartsOf(module);
    if (module == *modules.begin()) common = parts;
    common.erase(std::ranges::mismatch(common, parts).in1, common.end());
  }
  return fmt::format("{}", fmt::join(common, "."));
}

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

bool IsFused(std::string_view kernel) {
  return kernel.find("lockstep::") != std::string_view::npos;
}

bool IsLibTorchs(std::string_view kernel) {
  constexpr std::array<std::string_view, 3> kNames = {"at::native", "at_cuda_detail", "at::cuda"};
  return !IsFused(kernel) && std::ranges::any_of(kNames, [&](std::string_view name) {
    return kernel.find(name) != std::string_view::npos;
  });
}

double ShareOf(double ms, double step_ms) { return step_ms > 0 ? ms / step_ms : 0; }

struct Sum {
  double us = 0;
  double calls = 0;
  double flops = 0;
  double flops_us = 0;
  std::map<int64_t, double> by_step;
  std::set<std::string> modules;
};

std::string RemarkOn(const KernelRow& row) {
  constexpr double kManyCalls = 1000;
  constexpr double kDominates = 0.5;
  constexpr double kLow = 0.3;
  constexpr double kWorthwhile = 0.05;
  if (row.share > kDominates) return fmt::format("takes {:.0f} % of the step", 100 * row.share);
  if (row.calls > kManyCalls) {
    return fmt::format("is called {:.0f} times a step: fuse what calls it", row.calls);
  }
  if (row.of_peak > 0 && row.of_peak < kLow && row.share > kWorthwhile) {
    return fmt::format("computes at {:.0f} % of the peak", 100 * row.of_peak);
  }
  return {};
}

// Returns the host time of each phase in the profiled steps, in microseconds, without the time of the phases that are
// nested in the phase.
std::map<std::string, double> HostPhases(const Json& trace) {
  std::map<Json, std::vector<std::pair<double, double>>> steps;
  for (const Json& event : trace["traceEvents"]) {
    if (Text(event, "cat") == "user_annotation" && event.contains("dur") &&
        Text(event, "name").starts_with(kStepRange)) {
      const double begin = Number(event, "ts");
      steps[event["tid"]].emplace_back(begin, begin + Number(event, "dur"));
    }
  }
  std::map<Json, std::vector<const Json*>> by_thread;
  for (const Json& event : trace["traceEvents"]) {
    if (Text(event, "cat") != "user_annotation" || !event.contains("dur") ||
        !IsTracePhase(Text(event, "name"))) {
      continue;
    }
    const double begin = Number(event, "ts");
    if (std::ranges::any_of(steps[event["tid"]], [&](const auto& step) {
          return step.first <= begin && begin <= step.second;
        })) {
      by_thread[event["tid"]].push_back(&event);
    }
  }
  std::map<std::string, double> us;
  for (auto& [thread, phases] : by_thread) {
    std::ranges::stable_sort(phases, {}, [](const Json* phase) { return Number(*phase, "ts"); });
    std::vector<const Json*> open;
    for (const Json* phase : phases) {
      while (!open.empty() &&
             Number(*open.back(), "ts") + Number(*open.back(), "dur") <= Number(*phase, "ts")) {
        open.pop_back();
      }
      if (!open.empty()) us[Text(*open.back(), "name")] -= Number(*phase, "dur");
      us[Text(*phase, "name")] += Number(*phase, "dur");
      open.push_back(phase);
    }
  }
  return us;
}

std::vector<std::pair<std::string, double>> PhasesOf(const Json& trace,
                                                     const std::vector<Call>& calls, bool on_gpu,
                                                     double steps) {
  std::map<std::string, double> us;
  if (on_gpu) {
    for (const Call& call : calls) us[Text((*call.event)["args"], "phase")] += call.us;
  } else {
    us = HostPhases(trace);
  }
  std::vector<std::pair<std::string, double>> phases;
  for (const std::string_view phase : kTracePhases) {
    phases.emplace_back(phase, us[std::string(phase)] / kUsPerMs / steps);
  }
  return phases;
}

}  // namespace

RankProfile ProfileOf(const Json& trace, bool on_gpu, double peak_flops) {
  RankProfile profile;
  const std::vector<Call> calls = CallsOf(trace, on_gpu);
  std::set<int64_t> steps;
  std::map<std::pair<std::string, std::string>, Sum> sums;
  double all_us = 0;
  double attributed_us = 0;
  double fused_us = 0;
  double libtorch_us = 0;
  // The begin and the end of each step's work, by step. Time between two steps, for example of an evaluation, does not
  // count.
  std::map<int64_t, std::pair<double, double>> spans;
  for (const Call& call : calls) {
    const Json& arguments = (*call.event)["args"];
    const int64_t step = arguments.value("step", int64_t{0});
    const std::string phase = Text(arguments, "phase");
    steps.insert(step);
    const std::string name = Text(*call.event, "name");
    Sum& sum = sums[{name, phase}];
    sum.us += call.us;
    sum.calls += 1;
    sum.by_step[step] += call.us;
    sum.modules.insert(Text(arguments, "module"));
    if (const double flops = Number(arguments, "flops"); flops > 0) {
      sum.flops += flops;
      sum.flops_us += call.us;
    }
    all_us += call.us;
    if (!phase.empty()) attributed_us += call.us;
    if (on_gpu && IsFused(name)) fused_us += call.us;
    if (on_gpu && IsLibTorchs(name)) libtorch_us += call.us;
    std::pair<double, double>& span =
        spans.try_emplace(step, call.begin_us, call.begin_us).first->second;
    span.first = std::min(span.first, call.begin_us);
    span.second = std::max(span.second, call.begin_us + Number(*call.event, "dur"));
  }
  profile.steps = static_cast<int64_t>(steps.size());
  if (calls.empty() || all_us <= 0) return profile;
  const auto count = static_cast<double>(steps.size());
  double span_us = 0;
  for (const auto& [step, span] : spans) span_us += span.second - span.first;
  profile.step_ms = span_us / kUsPerMs / count;
  profile.busy_share = BusyUs(calls) / span_us;
  profile.attributed_share = attributed_us / all_us;
  profile.fused_share = fused_us / all_us;
  profile.libtorch_share = libtorch_us / all_us;
  profile.phases_ms = PhasesOf(trace, calls, on_gpu, count);
  for (const auto& [key, sum] : sums) {
    KernelRow row{.name = key.first,
                  .phase = key.second,
                  .module = CommonName(sum.modules),
                  .ms = sum.us / kUsPerMs / count,
                  .calls = sum.calls / count,
                  .us = sum.us / sum.calls};
    row.share = ShareOf(row.ms, profile.step_ms);
    std::vector<double> by_step;
    for (const auto& [step, us] : sum.by_step) by_step.push_back(us);
    row.median_ms = MedianOf(std::move(by_step)) / kUsPerMs;
    if (peak_flops > 0 && sum.flops_us > 0)
      row.of_peak = sum.flops / (1e-6 * sum.flops_us) / peak_flops;
    row.remark = RemarkOn(row);
    profile.kernels.push_back(std::move(row));
  }
  std::ranges::stable_sort(profile.kernels, std::greater(), &KernelRow::ms);
  if (profile.kernels.size() > kMostRows) profile.kernels.resize(kMostRows);
  return profile;
}

nlohmann::ordered_json JsonOf(const RankProfile& profile) {
  nlohmann::ordered_json json{{"rank", profile.rank},
                              {"device", profile.device},
                              {"steps", profile.steps},
                              {"step_ms", profile.step_ms},
                              {"busy_share", profile.busy_share},
                              {"attributed_share", profile.attributed_share},
                              {"fused_share", profile.fused_share},
                              {"libtorch_share", profile.libtorch_share}};
  json["phases_ms"] = nlohmann::ordered_json::object();
  for (const auto& [phase, ms] : profile.phases_ms) json["phases_ms"][phase] = ms;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelRow& row : profile.kernels) {
    nlohmann::ordered_json kernel{
        {"name", row.name}, {"phase", row.phase},         {"module", row.module},
        {"ms", row.ms},     {"median_ms", row.median_ms}, {"calls", row.calls},
        {"us", row.us},     {"share", row.share}};
    if (row.of_peak > 0) kernel["of_peak"] = row.of_peak;
    if (!row.remark.empty()) kernel["remark"] = row.remark;
    json["kernels"].push_back(std::move(kernel));
  }
  return json;
}

RankProfile RankProfileOf(const nlohmann::ordered_json& json) {
  RankProfile profile{.rank = json.at("rank").get<int>(),
                      .device = json.at("device").get<std::string>(),
                      .steps = json.at("steps").get<int64_t>(),
                      .step_ms = json.at("step_ms").get<double>(),
                      .busy_share = json.at("busy_share").get<double>(),
                      .attributed_share = json.at("attributed_share").get<double>(),
                      .fused_share = Number(json, "fused_share"),
                      .libtorch_share = Number(json, "libtorch_share"),
                      .phases_ms = {},
                      .kernels = {}};
  for (const auto& [phase, ms] : json.at("phases_ms").items()) {
    profile.phases_ms.emplace_back(phase, ms.get<double>());
  }
  for (const nlohmann::ordered_json& kernel : json.at("kernels")) {
    profile.kernels.push_back({.name = kernel.at("name").get<std::string>(),
                               .phase = kernel.at("phase").get<std::string>(),
                               .module = kernel.at("module").get<std::string>(),
                               .ms = kernel.at("ms").get<double>(),
                               .median_ms = kernel.at("median_ms").get<double>(),
                               .calls = kernel.at("calls").get<double>(),
                               .us = kernel.at("us").get<double>(),
                               .share = ShareOf(kernel.at("ms").get<double>(), profile.step_ms),
                               .of_peak = Number(kernel, "of_peak"),
                               .remark = Text(kernel, "remark")});
  }
  return profile;
}

std::string ShortName(const std::string& name, size_t most) {
  std::string text = name.starts_with("void ") ? name.substr(5) : name;
  for (const std::string_view noise : {"(anonymous namespace)::", "at::native::", "lockstep::"}) {
    for (size_t at = text.find(noise); at != std::string::npos; at = text.find(noise)) {
      text.erase(at, noise.size());
    }
  }
  // Removes the arguments of the function, which begin at the first parenthesis outside of template arguments.
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0 && i > 0) {
      // In "Memcpy DtoD (Device -> Device)" the parenthesis does not begin arguments.
      if (text[i - 1] != ' ') text.resize(i);
      break;
    }
  }
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

std::string TableOf(const RankProfile& profile, size_t most) {
  constexpr size_t kNameWidth = 60;
  std::string phases;
  for (const auto& [phase, ms] : profile.phases_ms) {
    if (ms > 0) phases += fmt::format("{}{} {:.3f}", phases.empty() ? "" : ", ", phase, ms);
  }
  const bool on_gpu = profile.device != "CPU";
  std::string works = fmt::format(", {} run in {:.1f} % of it", on_gpu ? "kernels" : "operations",
                                  100 * profile.busy_share);
  if (on_gpu) {
    works += fmt::format(
        ": {:.1f} % of that are fused operations, {:.1f} % LibTorch's, {:.1f} % libraries'",
        100 * profile.fused_share, 100 * profile.libtorch_share,
        100 * (1 - profile.fused_share - profile.libtorch_share));
  }
  std::string text = fmt::format(
      "rank {} on {}: {} step{} of {:.3f} ms{}\n"
      "  in ms a step: {}\n"
      "  {:>9} {:>6} {:>7} {:>9} {:>6}  {:<8}  {:<24}  {}\n",
      profile.rank, profile.device, profile.steps, profile.steps == 1 ? "" : "s", profile.step_ms,
      works, phases, "ms a step", "share", "calls", "us a call", "peak", "phase", "module",
      profile.device == "CPU" ? "operation" : "kernel");
  for (size_t i = 0; i < std::min(most, profile.kernels.size()); ++i) {
    const KernelRow& row = profile.kernels[i];
    text += fmt::format(
        "  {:>9.4f} {:>4.1f} % {:>7.1f} {:>9.2f} {:>6}  {:<8}  {:<24}  {}\n", row.ms,
        100 * row.share, row.calls, row.us,
        row.of_peak > 0 ? fmt::format("{:.0f} %", 100 * row.of_peak) : "", row.phase,
        row.module.size() > 24 ? ".." + row.module.substr(row.module.size() - 22) : row.module,
        ShortName(row.name, kNameWidth));
    if (!row.remark.empty()) text += fmt::format("  {:>9} it {}\n", "", row.remark);
  }
  return text;
}

std::vector<KernelChange> ChangesOf(const RankProfile& before, const RankProfile& after) {
  std::map<std::pair<std::string, std::string>, KernelChange> changes;
  const auto of = [&](const KernelRow& row) -> KernelChange& {
    KernelChange& change = changes[{row.name, row.phase}];
    change.name = row.name;
    change.phase = row.phase;
    return change;
  };
  for (const KernelRow& row : before.kernels) of(row).before_ms = row.median_ms;
  for (const KernelRow& row : after.kernels) of(row).after_ms = row.median_ms;
  std::vector<KernelChange> sorted;
  for (auto& [key, change] : changes) sorted.push_back(std::move(change));
  std::ranges::stable_sort(sorted, std::greater(), [](const KernelChange& change) {
    return change.after_ms - change.before_ms;
  });
  return sorted;
}

std::vector<std::string> SlowerSince(const RankProfile& before, const RankProfile& after) {
  constexpr double kGrowth = 0.2;
  const double of_step = after.device == "CPU" ? 0.2 : 0.03;
  std::vector<std::string> sentences;
  for (const KernelChange& change : ChangesOf(before, after)) {
    const double grown = change.after_ms - change.before_ms;
    if (grown < of_step * before.step_ms || grown < kGrowth * change.before_ms) continue;
    const std::string what = fmt::format("{}{}{}", ShortName(change.name, 80),
                                         change.phase.empty() ? "" : " in ", change.phase);
    sentences.push_back(
        change.before_ms > 0
            ? fmt::format("{} takes {:.3f} ms a step, and took {:.3f} ms in the first profile",
                          what, change.after_ms, change.before_ms)
            : fmt::format("{} takes {:.3f} ms a step, and was not in the first profile", what,
                          change.after_ms));
  }
  return sentences;
}

}  // namespace lockstep
