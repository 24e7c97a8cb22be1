#include "trainer/run/micro_batch_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "comm/together.h"
#include "observe/device_memory.h"
#include "trainer/run/open_data.h"

namespace lockstep {
namespace {

constexpr double kLeft = 0.05;  // of the GPU

}  // namespace

MicroBatchChoice::MicroBatchChoice(const config::Config& config, const Models& models,
                                   const World& world)
    : config_(config), world_(world) {
  if (config.micro_batch() != config::MicroBatch::AUTO) return;
  if (world.device.is_cuda() && models.CanForetell(config.model().name())) {
    foreteller_ = std::make_unique<Foreteller>(config, SpecOf(config.data()), models,
                                               TraitsOf(world.device), world.size());
  }
  chosen_ = Choose(/*step=*/0);
}

int64_t MicroBatchChoice::Room(double left) const {
  return FreeDeviceBytes(world_.device) + AllocatedBytes(world_.device) -
         static_cast<int64_t>(left * static_cast<double>(TotalDeviceBytes(world_.device)));
}

MicroBatchChosen MicroBatchChoice::Choose(int64_t step) {
  const int64_t of_rank = CeilDivide(config_.global_batch(), int64_t{world_.size()});
  const auto fits = [&](int64_t pieces) {
    return foreteller_
        ->Memory(
            {.micro_batch = CeilDivide(of_rank, pieces), .accumulation = static_cast<int>(pieces)},
            room_)
        .has_value();
  };
  // Where nothing fits with room left, something may without.
  int64_t accumulation = foreteller_ ? of_rank + 1 : 1;
  for (const double left : {kLeft, 0.0}) {
    if (accumulation <= of_rank) break;
    room_ = Room(left);
    accumulation = 1;
    while (accumulation <= of_rank && !fits(accumulation)) accumulation *= 2;
  }
  accumulation = std::min(accumulation, of_rank);
  const std::vector<int64_t> ranks =
      GatherValues(accumulation, "how many micro-batches fit", world_.host);
  const auto most = std::ranges::max_element(ranks);
  accumulation = *most;
  std::string why = "all samples fit at once";
  if (!foreteller_) {
    why = "the model's memory cannot be foretold here";
  } else if (most - ranks.begin() != world_.rank()) {
    why = fmt::format("fewer do not fit into the GPU of rank {}", most - ranks.begin());
  } else if (accumulation > 1) {
    why = fmt::format("fewer do not fit into the {} that the GPU has for them", BytesText(room_));
  }
  return {.step = step + 1,
          .micro_batch = CeilDivide(of_rank, accumulation),
          .accumulation = accumulation,
          .why = std::move(why)};
}

std::optional<MicroBatchChosen> MicroBatchChoice::Fewer(int64_t step, int64_t accumulation) {
  constexpr double kMore = 1.05;
  if (!chosen_ || !foreteller_ || config_.deterministic() || accumulation == 1 || step == 0 ||
      step % look_every_ != 0) {
    return std::nullopt;
  }
  const bool has_more = static_cast<double>(Room(kLeft)) > kMore * static_cast<double>(room_);
  if (!OnAnyRank(has_more, "whether there is more room for micro-batches", world_.host)) {
    return std::nullopt;
  }
  MicroBatchChosen chosen = Choose(step);
  if (chosen.accumulation >= accumulation) return std::nullopt;
  look_every_ *= 2;  // what comes and goes is followed ever less often
  return chosen;
}

}  // namespace lockstep
