#include "base/tensor/range.h"

#include <ATen/SequenceNumber.h>
#include <nvtx3/nvToolsExt.h>

namespace lockstep {

Range::Range(const std::string& name, Of of) : record_(at::RecordScope::USER_SCOPE) {
  if (of == Of::kModule) module_.emplace(name);
  nvtxRangePushA(name.c_str());
  // With the number that autograd's next node will get, by which a backward operation finds its range.
  if (record_.isActive()) {
    record_.before(name, static_cast<int64_t>(at::sequence_number::peek()));
  }
}

Range::~Range() {
  record_.end();
  nvtxRangePop();
}

}  // namespace lockstep
