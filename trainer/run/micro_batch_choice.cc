#include "trainer/run/micro_batch_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/together.h"
#include "observe/device_memory.h"

namespace lockstep {
namespace {

constexpr double kLeft = 0.05;  // fraction of the GPU's memory to leave free

}  // namespace

MicroBatchChoice::MicroBatchChoice(const config::Config& config, Foreteller* foreteller,
                                   const World& world)
    : config_(config), world_(world), foreteller_(foreteller) {
  if (config.micro_batch() == config::MicroBatch::AUTO) chosen_ = Choose(/*step=*/0);
}

int64_t MicroBatchChoice::Room(double left) const {
  return FreeDeviceBytes(world_.device) + AllocatedBytes(world_.device) -
         static_cast<int64_t>(left * static_cast<double>(TotalDeviceBytes(world_.device)));
}

int64_t MicroBatchChoice::FewestThatFit() {
  const int64_t most = StepFormOf(config_, /*accumulation=*/1, world_.size()).micro_batch;
  // If no number of micro-batches fits while kLeft is left free, the loop tries again with all of the memory.
  for (const double left : {kLeft, 0.0}) {
    room_ = Room(left);
    for (int64_t pieces = 1; pieces <= most; pieces *= 2) {
      if (foreteller_->Memory(StepFormOf(config_, pieces, world_.size()), room_)) return pieces;
    }
  }
  return most;
}

MicroBatchChosen MicroBatchChoice::Choose(int64_t step) {
  int64_t accumulation = 1;
  try {
    if (foreteller_ != nullptr) accumulation = FewestThatFit();
  } catch (const Error&) {
    foreteller_ = nullptr;  // the model has an operation that cannot be foretold
  }
  const std::vector<int64_t> ranks =
      GatherValues(accumulation, "how many micro-batches fit", world_.host);
  const auto most = std::ranges::max_element(ranks);
  accumulation = *most;
  std::string why = "all samples fit at once";
  if (foreteller_ == nullptr) {
    why = "the model's memory cannot be foretold here";
  } else if (most - ranks.begin() != world_.rank()) {
    why = fmt::format("fewer do not fit into the GPU of rank {}", most - ranks.begin());
  } else if (accumulation > 1) {
    why = fmt::format("fewer do not fit into the {} that the GPU has for them", BytesText(room_));
  }
  return {.step = step + 1,
          .micro_batch = StepFormOf(config_, accumulation, world_.size()).micro_batch,
          .accumulation = accumulation,
          .why = std::move(why)};
}

std::optional<MicroBatchChosen> MicroBatchChoice::Fewer(int64_t step, int64_t accumulation) {
  constexpr double kMore = 1.05;
  if (!chosen_ || foreteller_ == nullptr || config_.deterministic() || accumulation == 1 ||
      step == 0 || step % look_every_ != 0) {
    return std::nullopt;
  }
  const bool has_more = static_cast<double>(Room(kLeft)) > kMore * static_cast<double>(room_);
  if (!OnAnyRank(has_more, "whether there is more room for micro-batches", world_.host)) {
    return std::nullopt;
  }
  MicroBatchChosen chosen = Choose(step);
  if (chosen.accumulation >= accumulation) return std::nullopt;
  look_every_ *= 2;  // so that varying free memory changes the choice only a few times
  return chosen;
}

}  // namespace lockstep
