#include "base/tensor/range.h"

#include <ATen/SequenceNumber.h>
#include <nvtx3/nvToolsExt.h>

namespace lockstep {

Range::Range(const std::string& name, Of of) : record_(at::RecordScope::USER_SCOPE) {
  if (of == Of::kModule) module_.emplace(name);
  nvtxRangePushA(name.c_str());
  // The record gets the sequence number of autograd's next node. By this number the profiler assigns an operation of
  // the backward pass to its range.
  if (record_.isActive()) {
    record_.before(name, static_cast<int64_t>(at::sequence_number::peek()));
  }
}

Range::~Range() {
  record_.end();
  nvtxRangePop();
}

}  // namespace lockstep
