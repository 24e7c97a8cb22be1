// main() of the tests that run as several ranks: `mpirun -n N TEST`. Every rank runs every test;
// rank 0 writes the report; a failure on any rank fails the whole.

#include <gtest/gtest.h>

#include "comm/mpi_test_world.h"

namespace lockstep {
namespace {

MpiCommunicator* world = nullptr;

}  // namespace

MpiCommunicator& World() { return *world; }

}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::MpiCommunicator world;
  lockstep::world = &world;
  // gtest took the report's path from the environment before main() began.
  if (world.rank() != 0) testing::GTEST_FLAG(output) = "";
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  world.Finalize();
  return status;
}
