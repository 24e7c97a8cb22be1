#include "models/imported/leave_out_idle.h"

namespace lockstep::exported {
namespace {

// Returns whether the node has a result that other nodes may read from its first argument instead.
bool CanBeLeftOut(const Rewriter& rewriter, const Node& node) {
  const int64_t result = node.results[0].value;
  return IsValue(node.arguments[0]) && result >= 0 && result != rewriter.program().output;
}

}  // namespace

void LeaveOutEmptyPad(Rewriter& rewriter, int64_t node) {
  const Node& pad = rewriter.At(node);
  if (SingleOf(pad.arguments[1]) != 0 || !CanBeLeftOut(rewriter, pad)) return;
  const int64_t input = pad.arguments[0].value;
  if (rewriter.IsWritten(input) || rewriter.IsWritten(pad.results[0].value)) return;
  rewriter.LeaveOut(node, input);
}

void LeaveOutIdleDropout(Rewriter& rewriter, int64_t node) {
  const Node& dropout = rewriter.At(node);
  const bool is_idle =
      NumberOf(dropout.arguments[1]) == 0 || IsConstant(dropout.arguments[2], false);
  if (is_idle && CanBeLeftOut(rewriter, dropout)) {
    rewriter.LeaveOut(node, dropout.arguments[0].value);
  }
}

}  // namespace lockstep::exported
