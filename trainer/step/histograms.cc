#include "trainer/step/histograms.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <span>

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kValuesAtOnce = int64_t{1} << 20;

// The columns of a table that has one row for each histogram. The columns from kCounts on hold the number of values in
// each range. One more column at the end holds the number of values that are not finite.
enum Column { kMin, kMax, kNum, kSum, kSumSquares, kCounts };

// Divides the values by `scale`, and adds them to the histogram `row`, float64 [columns]. `bounds` are the bounds of
// the ranges, as float64.
void AddValues(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& bounds,
               const at::Tensor& row) {
  const int64_t ranges = bounds.numel() - 1;
  const at::Tensor counts = row.narrow(0, kCounts, ranges + 1);
  for (const at::Tensor& some : values.reshape({-1}).split(kValuesAtOnce)) {
    const at::Tensor x = some.to(at::kDouble) / scale;
    const at::Tensor is_finite = x.isfinite();
    const at::Tensor finite = at::where(is_finite, x, 0.0);
    row[kMin].copy_(at::minimum(row[kMin], at::where(is_finite, x, kInfinity).min()));
    row[kMax].copy_(at::maximum(row[kMax], at::where(is_finite, x, -kInfinity).max()));
    row[kNum].add_(is_finite.sum());
    row[kSum].add_(finite.sum());
    row[kSumSquares].add_(finite.square().sum());
    // `range` is the index for which bounds[range] <= x < bounds[range + 1].
    const at::Tensor range =
        (at::bucketize(finite, bounds, /*out_int32=*/false, /*right=*/true) - 1)
            .clamp_(0, ranges - 1);
    counts.scatter_add_(0, at::where(is_finite, range, ranges), at::ones_like(x));
  }
}

// Combines the tables of all ranks, which are on the CPU, into `table` on every rank.
void AddRanks(at::Tensor& table, Communicator& host) {
  at::Tensor sums = table.narrow(1, kNum, table.size(1) - kNum).contiguous();
  const Label label = host.MakeLabel("histograms");
  Work adds = host.AllReduceSum(sums, label);
  const at::Tensor own =
      at::stack({table.select(1, kMin).neg(), table.select(1, kMax)}, 1).contiguous();
  at::Tensor all = at::empty({host.world_size(), own.size(0), own.size(1)}, own.options());
  Work gathers = host.AllGather(all, own, label);
  adds.Wait();
  gathers.Wait();
  const at::Tensor most = all.amax(0);
  table.select(1, kMin).copy_(most.select(1, 0).neg());
  table.select(1, kMax).copy_(most.select(1, 1));
  table.narrow(1, kNum, table.size(1) - kNum).copy_(sums);
}

}  // namespace

std::vector<Histogram> HistogramsOf(const std::vector<NamedTensor>& parameters,
                                    const Reducer& reducer, const at::Tensor& loss_scale,
                                    bool sharded, Communicator& host) {
  if (parameters.empty() || (!sharded && host.rank() != 0)) return {};
  const at::NoGradGuard no_grad;
  const at::TensorOptions numbers(at::kDouble);
  const at::Tensor bounds =
      at::tensor(HistogramBounds(), numbers).to(parameters.front().tensor.device());
  const auto rows = static_cast<int64_t>(2 * parameters.size());
  at::Tensor table = at::zeros({rows, kCounts + bounds.numel()}, bounds.options());
  const at::Tensor one = at::ones({}, bounds.options());
  table.select(1, kMin).fill_(kInfinity);
  table.select(1, kMax).fill_(-kInfinity);
  for (size_t stage = 0; stage < reducer.stages(); ++stage) {
    for (const Shard& shard : reducer.shards(stage)) {
      AddValues(shard.parameter, one, bounds, table[2 * shard.index]);
      AddValues(shard.gradient, loss_scale, bounds, table[2 * shard.index + 1]);
    }
  }
  table = table.cpu();
  if (sharded) AddRanks(table, host);
  if (host.rank() != 0) return {};

  std::vector<Histogram> histograms;
  const auto ranges = static_cast<size_t>(bounds.numel() - 1);
  for (int64_t i = 0; i < rows; ++i) {
    const auto* const row = table[i].const_data_ptr<double>();
    if (row[kNum] == 0) continue;
    Histogram histogram{.tag = (i % 2 == 0 ? "parameters/" : "gradients/") + parameters[i / 2].name,
                        .min = row[kMin],
                        .max = row[kMax],
                        .num = row[kNum],
                        .sum = row[kSum],
                        .sum_squares = row[kSumSquares]};
    SetCounts(std::span(row + kCounts, ranges), histogram);
    histograms.push_back(std::move(histogram));
  }
  return histograms;
}

}  // namespace lockstep
