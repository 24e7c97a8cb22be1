// Defines main() for tests that run as several ranks (`mpirun -n N TEST`). Every rank runs every test, and rank 0
// writes the report. If a test fails on any rank, the whole run fails.

#include <ATen/cuda/CUDAContext.h>

#include "comm/nccl_communicator.h"
#include "comm/testing/mpi_test_world.h"

namespace lockstep {
namespace {

MpiCommunicator* world = nullptr;
FlightRecorder* recorder = nullptr;

}  // namespace

MpiCommunicator& World() { return *world; }

FlightRecorder& Recorder() { return *recorder; }

void EachChannel::SetUp() {
  if (GetParam() == Channel::kMpi) return;
  if (at::cuda::device_count() < World().world_size()) {
    GTEST_SKIP() << "needs a GPU for each rank: " << World().world_size() << " ranks, "
                 << static_cast<int>(at::cuda::device_count()) << " GPUs";
  }
  device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(World().rank()));
  c10::cuda::set_device(device_.index());
  nccl_ = MakeNccl(device_, World(), Recorder());
}

std::vector<FlightRecord> EachChannel::RecordsFrom(uint64_t first) {
  if (device_.is_cuda()) at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  communicator().Poll();
  std::vector<FlightRecord> records = Recorder().Around(UINT64_MAX, 0).of(GetParam()).records;
  std::erase_if(records, [&](const FlightRecord& record) { return record.sequence < first; });
  return records;
}

}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::FlightRecorder recorder;
  lockstep::MpiCommunicator world(recorder);
  lockstep::recorder = &recorder;
  lockstep::world = &world;
  // GoogleTest has read the report's path from the environment before main() began. Only rank 0 may write the report.
  if (world.rank() != 0) testing::GTEST_FLAG(output) = "";
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  world.Finalize();
  return status;
}
