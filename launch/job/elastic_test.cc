#include "launch/job/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Elastic, LeavesOutWhatFailsHangsOrIsKilled) {
  EXPECT_THAT(WhichSucceed({{"true"},
                            {"false"},
                            {"sleep", "1000"},
                            {"sh", "-c", "trap '' TERM; while :; do sleep 1; done"},
                            {"sh", "-c", "kill -9 $$"},
                            {"true"}},
                           /*limit_s=*/1),
              ElementsAre(0, 5));
}

TEST(Elastic, NothingMayBeLeft) {
  EXPECT_THAT(WhichSucceed({{"false"}}, /*limit_s=*/60), IsEmpty());
}

TEST(Elastic, AsksEachGpuByItself) {
  setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1", 1);
  EXPECT_THAT(GpusHere(), ElementsAre("3", "GPU-1"));
  const std::string program = NewFolder() + "/program";
  WriteFile(program,
            "#!/bin/sh\n[ \"$1\" = probe-gpu ] && [ \"$CUDA_VISIBLE_DEVICES\" = GPU-1 ]\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  EXPECT_THAT(WorkingGpus(GpusHere(), program), ElementsAre("GPU-1"));
}

}  // namespace
}  // namespace lockstep
