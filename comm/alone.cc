#include "comm/alone.h"

namespace lockstep {
namespace {

class Alone : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }

  Work AllReduceSum(at::Tensor) override { return {}; }
  Work Broadcast(at::Tensor, int) override { return {}; }

  Work AllGather(at::Tensor output, at::Tensor input) override {
    output.copy_(input.view_as(output));
    return {};
  }

  Work ReduceScatterSum(at::Tensor output, at::Tensor input) override {
    output.copy_(input.view_as(output));
    return {};
  }

  void Barrier() override {}
};

}  // namespace

std::unique_ptr<Communicator> MakeAlone() { return std::make_unique<Alone>(); }

}  // namespace lockstep
