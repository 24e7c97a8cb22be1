#include "models/imported/leave_out_pad.h"

namespace lockstep::exported {

void LeaveOutEmptyPad(Rewriter& rewriter, int64_t node) {
  const Node& pad = rewriter.At(node);
  const bool is_empty = SingleOf(pad.arguments[1]) == 0;
  const int64_t result = pad.results[0].value;
  if (!is_empty || !IsValue(pad.arguments[0]) || result < 0 || result == rewriter.program().output)
    return;
  const int64_t input = pad.arguments[0].value;
  if (rewriter.IsWritten(input) || rewriter.IsWritten(result)) return;
  rewriter.LeaveOut(node, input);
}

}  // namespace lockstep::exported
