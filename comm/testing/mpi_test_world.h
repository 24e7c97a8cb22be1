// For tests that are linked with mpi_test_main.cc: gives access to the ranks on which a test runs, and to the ranks'
// GPUs if each rank has one.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <memory>

#include "comm/mpi_communicator.h"

namespace lockstep {

MpiCommunicator& World();

// Returns the flight recorder of World() and of the other communicators of a test.
FlightRecorder& Recorder();

// The base class of tests that run once with CPU tensors through MPI and once with GPU tensors through NCCL.
class EachChannel : public testing::TestWithParam<Channel> {
 protected:
  // Makes the NCCL communicator for a test with GPU tensors. Skips this test if there are fewer GPUs than ranks.
  void SetUp() override;

  Communicator& communicator() { return nccl_ ? *nccl_ : static_cast<Communicator&>(World()); }
  at::Device device() const { return device_; }
  at::TensorOptions options(at::ScalarType dtype) const {
    return at::TensorOptions(device_).dtype(dtype);
  }
  static int64_t rank() { return World().rank(); }
  static int64_t ranks() { return World().world_size(); }

  // Returns the records of the channel's collectives from number `first` on.
  std::vector<FlightRecord> RecordsFrom(uint64_t first);
  uint64_t next_sequence() const { return Recorder().State(GetParam()).enqueued + 1; }

 private:
  at::Device device_ = at::kCPU;
  std::unique_ptr<Communicator> nccl_;
};

#define INSTANTIATE_EACH_CHANNEL(Suite)                                \
  INSTANTIATE_TEST_SUITE_P(                                            \
      Channels, Suite, testing::Values(Channel::kMpi, Channel::kNccl), \
      [](const auto& info) { return std::string(info.param == Channel::kMpi ? "Mpi" : "Nccl"); })

}  // namespace lockstep
