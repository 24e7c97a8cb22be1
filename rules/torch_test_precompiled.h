// The headers of tests that compute with tensors; compiled once, see rules/precompiled.bzl.
#include "rules/torch_precompiled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
