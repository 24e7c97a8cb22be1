#include "base/files/cache_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace lockstep {
namespace {

TEST(CacheFolder, IsWhereTheUsersCachesAre) {
  const auto saved = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const std::optional<std::string> home = saved("HOME");
  const std::optional<std::string> cache = saved("XDG_CACHE_HOME");
  setenv("HOME", "/home/someone", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(CacheFolder(), "/home/someone/.cache/lockstep");
  setenv("XDG_CACHE_HOME", "/var/cache", 1);
  EXPECT_EQ(CacheFolder(), "/var/cache/lockstep");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(CacheFolder(), "/home/someone/.cache/lockstep");
  unsetenv("HOME");
  EXPECT_EQ(CacheFolder(), "");
  home ? setenv("HOME", home->c_str(), 1) : unsetenv("HOME");
  cache ? setenv("XDG_CACHE_HOME", cache->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace lockstep
