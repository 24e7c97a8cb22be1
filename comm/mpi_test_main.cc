// main() of the tests that run as several ranks: `mpirun -n N TEST`. Every rank runs every test;
// rank 0 writes the report; a failure on any rank fails the whole.

#include <gtest/gtest.h>

#include <cstdlib>

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
  if (world.rank() != 0) {
    // Two places that gtest takes the report's name from; the second is Bazel's.
    unsetenv("GTEST_OUTPUT");
    unsetenv("XML_OUTPUT_FILE");
  }
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  world.Finalize();
  return status;
}
