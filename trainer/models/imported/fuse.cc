#include "trainer/models/imported/fuse.h"

#include <algorithm>
#include <string_view>

#include "trainer/models/imported/fuse_attention.h"
#include "trainer/models/imported/fuse_layer_norm.h"
#include "trainer/models/imported/fuse_max_pool.h"
#include "trainer/models/imported/rewriter.h"

namespace lockstep::exported {
namespace {

struct Pattern {
  std::string_view operation;
  void (*fuse)(Rewriter& rewriter, int64_t node, const SharedStatistics& shared);
};

constexpr Pattern kPatterns[] = {
    {"aten::batch_norm", FuseBatchNorm}, {"aten::native_batch_norm", FuseBatchNorm},
    {"aten::layer_norm", FuseLayerNorm}, {"aten::scaled_dot_product_attention", FuseAttention},
    {"aten::max_pool2d", FuseMaxPool},   {"aten::pad", LeaveOutEmptyPad}};

}  // namespace

int64_t Fuse(Program& program, const SharedStatistics& shared) {
  const int64_t norms = std::ranges::count_if(program.nodes, IsBatchNorm);
  Rewriter rewriter(program);
  for (int64_t i = 0; i < rewriter.size(); ++i) {
    for (const Pattern& pattern : kPatterns) {
      if (!rewriter.IsGone(i) && NameOf(rewriter.At(i)) == pattern.operation) {
        pattern.fuse(rewriter, i, shared);
      }
    }
  }
  rewriter.Finish();
  return norms;
}

}  // namespace lockstep::exported
