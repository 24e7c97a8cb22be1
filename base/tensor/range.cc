#include "base/tensor/range.h"

#include <nvtx3/nvToolsExt.h>

namespace lockstep {

Range::Range(const std::string& name) : record_(at::RecordScope::USER_SCOPE) {
  nvtxRangePushA(name.c_str());
  if (record_.isActive()) record_.before(name);
}

Range::~Range() {
  record_.end();
  nvtxRangePop();
}

}  // namespace lockstep
