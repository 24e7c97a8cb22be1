#include "observe/memory/allocation_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "observe/memory/memory_report.h"

namespace lockstep {

std::string WordsOf(const AllocationFailure& failure) {
  // `in_pools` leaves out the blocks of graphs' pools that tensors use at the moment, because these blocks are counted
  // in allocated_bytes.
  const int64_t in_pools =
      std::max<int64_t>(0, failure.reserved_bytes - failure.free_bytes - failure.allocated_bytes);
  std::string text =
      fmt::format("{} were needed at once; of the GPU's {}, tensors hold {}",
                  BytesText(failure.requested_bytes), BytesText(failure.device_bytes),
                  BytesText(failure.allocated_bytes));
  if (failure.pool_bytes > 0 && in_pools > 0) {
    text += fmt::format(", CUDA graphs {} more", BytesText(in_pools));
  }
  text += fmt::format(", {} are reserved and free", BytesText(failure.usable_bytes));
  if (failure.usable_bytes > 0) {
    text += fmt::format(" in blocks of at most {}", BytesText(failure.largest_usable_bytes));
  }
  const int64_t unusable = failure.free_bytes - failure.usable_bytes;
  if (unusable > 0)
    text += fmt::format(", {} are free for other streams or sizes", BytesText(unusable));
  text += fmt::format(", and {} are not reserved", BytesText(failure.device_free_bytes));
  if (failure.IsFragmented()) text += ": the free memory is fragmented";
  return text;
}

std::string RemedyOf(const AllocationFailure& failure) {
  if (!failure.IsFragmented()) return "";
  return "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, or raise "
         "accumulation";
}

std::string EndOfLine(const std::optional<FailedAllocation>& failed) {
  if (!failed) return "";
  const std::string remedy = RemedyOf(failed->failure);
  return fmt::format("; {}{}{}{}",
                     failed->is_only_rank ? "" : fmt::format("rank {}: ", failed->rank),
                     WordsOf(failed->failure), remedy.empty() ? "" : ": ", remedy);
}

}  // namespace lockstep
