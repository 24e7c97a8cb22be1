// The headers of tests that compute with tensors; compiled once, see rules/precompiled.bzl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/torch_precompiled.h"
