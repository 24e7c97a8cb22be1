#include "base/memory_scope.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace lockstep {
namespace {

TEST(MemoryScope, TheInnermostCounts) {
  EXPECT_EQ(MemoryScope::Now(), MemoryOwner::kUnknown);
  {
    const MemoryScope outer(MemoryOwner::kGradients);
    {
      const MemoryScope inner(MemoryOwner::kParameters);
      EXPECT_EQ(MemoryScope::Now(), MemoryOwner::kParameters);
    }
    EXPECT_EQ(MemoryScope::Now(), MemoryOwner::kGradients);
  }
  EXPECT_EQ(MemoryScope::Now(), MemoryOwner::kUnknown);
}

TEST(ModuleScope, PartsHaveTheNamesOfWhatTheyArePartsOf) {
  const ModuleScope model("model");
  std::optional<ModuleScope> block("blocks.3");
  {
    const ModuleScope part(std::string("attention"));
    EXPECT_EQ(ModuleScope::Now(), "model.blocks.3.attention");
  }
  EXPECT_EQ(ModuleScope::Now(), "model.blocks.3");
  block.emplace("head");
  EXPECT_EQ(ModuleScope::Now(), "model.head");
}

TEST(ModuleScope, MayEndBeforeTheInnerOnes) {
  std::optional<ModuleScope> outer("outer");
  std::optional<ModuleScope> inner("inner");
  outer.reset();
  EXPECT_EQ(ModuleScope::Now(), "inner");
  inner.reset();
  EXPECT_EQ(ModuleScope::Now(), "");
}

TEST(ModuleScope, IsOfItsThread) {
  const ModuleScope scope("module");
  std::string there = "unset";
  std::jthread([&] { there = ModuleScope::Now(); }).join();
  EXPECT_EQ(there, "");
}

}  // namespace
}  // namespace lockstep
