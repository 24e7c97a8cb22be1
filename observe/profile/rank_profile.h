// RankProfile: says what one rank's steps spend their time on, by phase and by kernel.
//
// On a GPU all times are measured on the GPU. On a CPU, operations take the place of kernels. The time of an operation
// excludes the operations nested in it, and the time of a phase is the time that passes on the training thread.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// The calls of one kernel in one phase of a step. All figures are for one step.
struct KernelRow {
  std::string name;   // as the compiler spells it, with arguments
  std::string phase;  // empty: unknown
  // The module that makes the calls, or the common prefix of several modules, such as "transformer.h.*"; empty: none.
  std::string module;
  double ms = 0;         // the mean time over all steps
  double median_ms = 0;  // the median time over the steps with calls
  double calls = 0;
  double us = 0;         // the mean time of a call
  double share = 0;      // ms as a fraction of the step's time, RankProfile::step_ms
  double of_peak = 0;    // FLOP/s as a fraction of the device's peak; 0: unknown
  std::string remark{};  // a remark for the user; empty: none
};

struct RankProfile {
  int rank = 0;
  std::string device;  // the GPU's name, or "CPU"
  int64_t steps = 0;
  double step_ms = 0;     // the mean time from a step's first work to its last work's end
  double busy_share = 0;  // the share of step_ms in which a kernel ran, or on a CPU an operation
  double attributed_share = 0;  // the share of the device's time whose phase is known
  // On a GPU: the shares of the GPU's time in kernels of Lockstep's fused operations, and in kernels of LibTorch's own
  // operations. The rest is the matrix products, convolutions and attention of NVIDIA's libraries, and copies.
  double fused_share = 0;
  double libtorch_share = 0;
  std::vector<std::pair<std::string, double>> phases_ms;  // phase, and mean ms per step
  std::vector<KernelRow> kernels;  // the kernel that takes the most time comes first
};

// Returns the profile of a trace that AddPlaces() (observe/profile/trace_places.h) has annotated. `peak_flops` is the
// device's peak in FLOP/s; 0: unknown.
RankProfile ProfileOf(const nlohmann::json& trace, bool on_gpu, double peak_flops);

nlohmann::ordered_json JsonOf(const RankProfile& profile);

// Returns the profile from which JsonOf() made `json`. KernelRow::share is computed anew, because older versions wrote
// the fraction of the time in which kernels ran. Throws nlohmann::json::exception if `json` is not such an
// object.
RankProfile RankProfileOf(const nlohmann::ordered_json& json);

// Returns a table as text: lines about the step, its phases and the columns, and below them one line for each of the
// `most` kernels that take the most time.
std::string TableOf(const RankProfile& profile, size_t most);

// Returns a kernel's name without return type and argument types, at most `most` characters long.
std::string ShortName(const std::string& name, size_t most);

struct KernelChange {
  std::string name;
  std::string phase;
  double before_ms = 0;
  double after_ms = 0;
};

// Returns the change of each kernel's median time per step between two profiles, the greatest growth first. A kernel
// that only one profile has is included, with a time of 0 in the other profile.
std::vector<KernelChange> ChangesOf(const RankProfile& before, const RankProfile& after);

// Returns a sentence for each kernel of `after` that has become clearly slower since `before`: by at least a fifth, and
// by at least 3 % of the step on a GPU or 20 % of the step on a CPU. The limit is higher on a CPU, because times on a
// CPU vary with the CPU's other work. The medians over the steps are compared, so the short last batch of an epoch does
// not matter.
std::vector<std::string> SlowerSince(const RankProfile& before, const RankProfile& after);

}  // namespace lockstep
