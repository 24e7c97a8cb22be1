// RankProfile: what one rank's steps spend their time on: its phases, and its kernels from the heaviest on.
//
// On a GPU all times are the GPU's. On a CPU operations stand for kernels, each with the time that it spends outside
// the operations within it, and a phase's time is what passes on the training thread.
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
  std::string
      module;  // "transformer.h.*" where several modules begin so; empty: none, or they have no name in common
  double ms = 0;         // the mean
  double median_ms = 0;  // of the steps in which it is called
  double calls = 0;
  double us = 0;         // the mean of a call
  double share = 0;      // of the device's time in a step
  double of_peak = 0;    // FLOP/s as a fraction of the device's peak; 0: unknown
  std::string remark{};  // what is worth to be known about it; empty: nothing
};

struct RankProfile {
  int rank = 0;
  std::string device;  // the GPU's name, or "CPU"
  int64_t steps = 0;
  double step_ms = 0;           // from the first work of the steps to the last, for one step
  double busy_share = 0;        // the share of that time in which the device worked
  double attributed_share = 0;  // the share of the device's time whose phase is known
  // On a GPU: the shares of its time that go to the kernels of Lockstep's fused operations, and to those of LibTorch's
  // single operations. The rest are the products, convolutions and attention of NVIDIA's libraries, and copies.
  double fused_share = 0;
  double libtorch_share = 0;
  std::vector<std::pair<std::string, double>> phases_ms;  // for one step
  std::vector<KernelRow> kernels;                         // the heaviest first
};

// Returns the profile of a trace to which AddPlaces() (observe/profile/trace_places.h) has added places. `peak_flops`
// is the device's, in FLOP/s; 0: unknown.
RankProfile ProfileOf(const nlohmann::json& trace, bool on_gpu, double peak_flops);

nlohmann::ordered_json JsonOf(const RankProfile& profile);

// The reverse. Throws nlohmann::json::exception if it is no such object.
RankProfile RankProfileOf(const nlohmann::ordered_json& json);

// Returns the `most` heaviest kernels as a table, one line each, below a line with names and one on the step.
std::string TableOf(const RankProfile& profile, size_t most);

// Returns a kernel's name without the types of its arguments and without return type, at most `most` characters long.
std::string ShortName(const std::string& name, size_t most);

struct KernelChange {
  std::string name;
  std::string phase;
  double before_ms = 0;
  double after_ms = 0;
};

// Returns the change of each kernel's time between two profiles, the greatest growth first. Kernels that only one of
// them has are included, with 0 on the other side.
std::vector<KernelChange> ChangesOf(const RankProfile& before, const RankProfile& after);

// Returns a sentence for each kernel of `after` that has become clearly slower since `before`: by more than a fifth,
// and by more than 3 % of the step on a GPU and 20 % on a CPU, whose times vary with its other work. The medians over
// the steps are compared, so a short last batch of an epoch does not count.
std::vector<std::string> SlowerSince(const RankProfile& before, const RankProfile& after);

}  // namespace lockstep
