#include "models/imported/fuse.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "models/imported/fuse_attention.h"
#include "models/imported/fuse_embedding.h"
#include "models/imported/fuse_fork.h"
#include "models/imported/fuse_generated.h"
#include "models/imported/fuse_grouped_attention.h"
#include "models/imported/fuse_layer_norm.h"
#include "models/imported/fuse_linear.h"
#include "models/imported/fuse_max_pool.h"
#include "models/imported/fuse_multihead_attention.h"
#include "models/imported/fuse_rms_norm.h"
#include "models/imported/fuse_scaled_sum.h"
#include "models/imported/fuse_squeeze_excite.h"
#include "models/imported/fuse_windows.h"
#include "models/imported/leave_out_idle.h"
#include "models/imported/rewriter.h"
#include "models/imported/shorten_cat.h"

namespace lockstep::exported {
namespace {

struct Pattern {
  std::string_view operation;
  std::function<void(Rewriter& rewriter, int64_t node)> fuse;
};

void FuseEach(Rewriter& rewriter, const std::vector<Pattern>& patterns) {
  for (const Pattern& pattern : patterns) {
    for (int64_t i = 0; i < rewriter.size(); ++i) {
      if (!rewriter.IsGone(i) && NameOf(rewriter.At(i)) == pattern.operation) {
        pattern.fuse(rewriter, i);
      }
    }
  }
}

}  // namespace

int64_t Fuse(Program& program, const SharedStatistics& shared) {
  const int64_t norms = std::ranges::count_if(program.nodes, IsBatchNorm);
  const auto fuse_batch_norm = [&shared](Rewriter& rewriter, int64_t node) {
    FuseBatchNorm(rewriter, node, shared);
  };
  // Operations that do nothing are left out first, because they would separate a norm from its users.
  const std::vector<Pattern> idle = {{"aten::pad", LeaveOutEmptyPad},
                                     {"aten::dropout", LeaveOutIdleDropout},
                                     {"aten::cat", ShortenCat}};
  // The patterns run in this order. Convolutions come before the norms, with which the residual sums that read their
  // inputs are fused. Attention with explicit scores comes before scaled sums, which the scores can be. Scaled sums
  // come before the norms that would otherwise be fused with those sums. Max-pooling comes after BatchNorm, which may
  // be fused with a pooling. Norms and sums look for aten::linear nodes among their users, because under autocast these
  // nodes round their input to 16 bits, and a norm or sum can then return the rounded result itself. Fused nodes are
  // not recognized in this search, so linear layers are fused last. The search passes through nodes that only move
  // values, so windows, which consist of such nodes, are fused after the norms.
  const std::vector<Pattern> patterns = {
      {"aten::conv2d", FuseFork},
      {"aten::mean", FuseSqueezeExcite},
      {"aten::adaptive_avg_pool2d", FuseSqueezeExcite},
      {"aten::batch_norm", fuse_batch_norm},
      {"aten::native_batch_norm", fuse_batch_norm},
      {"aten::softmax", FuseSoftmaxAttention},
      {"aten::mul", FuseScaledSum},
      {"aten::embedding", FuseEmbedding},
      {"aten::layer_norm", FuseLayerNorm},
      {"aten::rsqrt", FuseRmsNorm},
      {"aten::rms_norm", FuseRmsNorm},
      {"aten::scaled_dot_product_attention", FuseAttention},
      {"aten::scaled_dot_product_attention", FuseMultiheadAttention},
      {"aten::scaled_dot_product_attention", FuseGroupedAttention},
      {"aten::max_pool2d", FuseMaxPool},
      {"aten::permute", FuseWindows},
      {"aten::linear", FuseLinear}};
  Rewriter rewriter(program);
  FuseEach(rewriter, idle);
  const WantedForms forms = WantedFormsOf(rewriter);
  FuseEach(rewriter, patterns);
  FuseGenerated(rewriter, forms);  // what no pattern has fused
  rewriter.Finish();
  return norms;
}

}  // namespace lockstep::exported
