// The headers of tests; compiled once, see rules/precompiled.bzl.
#include "rules/core_precompiled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
