// A lockstep program whose model, linear otherwise, fails as its options say: in the forward number
// `at`, counted from 0, on rank `rank`, by throwing (fault 1), by killing its own process (2), or
// by killing the mpirun that started it (3); or on every rank by leaving its bias unused (4). Options
// `twice` and `norm` register the layer under a second name, and put BatchNorm behind it.

#include <signal.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdlib>

#include "launch/main.h"

namespace {

enum Fault { kNone = 0, kThrow = 1, kKillRank = 2, kKillMpirun = 3, kUnusedBias = 4 };

class FaultyModel : public lockstep::Model {
 public:
  explicit FaultyModel(const lockstep::ModelSpec& spec)
      : fault_(spec.IntegerOption("fault", kNone)),
        rank_(spec.IntegerOption("rank", 0)),
        at_(spec.IntegerOption("at", 0)),
        linear_(register_module("linear", torch::nn::Linear(spec.input_shape[0], spec.classes))) {
    if (spec.IntegerOption("twice", 0) != 0) register_module("again", linear_);
    if (spec.IntegerOption("norm", 0) != 0) {
      norm_ = register_module("norm", torch::nn::BatchNorm1d(spec.classes));
    }
  }

  at::Tensor Forward(const at::Tensor& input) override {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (is_training() && forwards_++ == at_ && rank_ == (rank == nullptr ? 0 : std::atoi(rank))) {
      if (fault_ == kThrow) throw std::runtime_error("the model broke\nsecond line");
      if (fault_ == kKillRank) kill(getpid(), SIGKILL);
      if (fault_ == kKillMpirun) kill(getppid(), SIGKILL);
    }
    const at::Tensor output =
        at::linear(input, linear_->weight, fault_ == kUnusedBias ? at::Tensor() : linear_->bias);
    return norm_ ? norm_(output) : output;
  }

 private:
  int64_t fault_;
  int64_t rank_;
  int64_t at_;
  int64_t forwards_ = 0;
  torch::nn::Linear linear_;
  torch::nn::BatchNorm1d norm_{nullptr};
};

}  // namespace

int main(int argc, char** argv) {
  lockstep::Models models = lockstep::BuiltInModels();
  models.Add<FaultyModel>("faulty");
  return lockstep::Main(argc, argv, models);
}
