// Includes the headers that tests of tensor computations need. This header is precompiled (rules/precompiled.bzl).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/torch_precompiled.h"
