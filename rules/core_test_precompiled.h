// Includes the headers that tests need. This header is precompiled (rules/precompiled.bzl).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/core_precompiled.h"
