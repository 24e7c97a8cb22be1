// The headers of tests; compiled once, see rules/precompiled.bzl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/core_precompiled.h"
