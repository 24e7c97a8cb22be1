"""The macros of a room's BUILD file: a unit is foo.h, foo.cc, and where they are there foo_test.cc and foo_bench.cc.

    unit(name = "crop", deps = [...])      foo.h and foo.cc as a library; foo_bench.cc as the program foo_bench
    op(name = "linear", deps = [...])      the same with foo.cu behind foo_kernel.h, compiled by nvcc
    room_tests(deps = [...])               all of the room's foo_test.cc in one program, `tests`

One program a room, because each is linked with LibTorch and loads it: `bazel test //data/images:tests
--test_filter='Crop.*'` runs some of it.
"""

load("//rules:cuda.bzl", "cuda_library")
load("//rules:precompiled.bzl", "PRECOMPILED")

# A test runs its own code once, so that optimising it takes longer than it saves.
TEST_COPTS = ["-O1"]

def unit(name, deps = [], srcs = [], hdrs = [], bench_deps = [], precompiled = "", copts = [], **kwargs):
    """The library `name`, and the benchmark `name`_bench where there is one.

    Args:
      name: of the unit and of its files
      deps: of the library
      srcs: what belongs to it besides `name`.cc
      hdrs: what belongs to it besides `name`.h
      bench_deps: what `name`_bench.cc needs besides the library
      precompiled: which of LibTorch's long headers its files begin with, read once (rules/precompiled.bzl): "core" if
        they name tensors, "tensor" if they include ATen/ATen.h or ATen/cuda, "torch" if they include those of autograd
        or modules, too
      copts: as cc_library's
      **kwargs: as cc_library's
    """
    native.cc_library(
        name = name,
        srcs = native.glob([name + ".cc"]) + srcs,
        hdrs = native.glob([name + ".h"]) + hdrs,
        copts = copts + PRECOMPILED[precompiled].copts,
        deps = deps + PRECOMPILED[precompiled].deps,
        **kwargs
    )
    if native.glob([name + "_bench.cc"]):
        bench(name + "_bench", deps = [":" + name] + bench_deps)

def bench(name, deps):
    """The benchmark `name`, of a file of that name."""
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        deps = deps + ["@system//:benchmark"],
    )

def op(name, deps = [], kernel_srcs = [], kernel_hdrs = [], kernel_deps = [], architectures = [], precompiled = "torch", **kwargs):
    """An operation of ops: a unit on top of its kernels, the library `name`_kernel.

    Args:
      name: of the operation and of its files
      deps: of the unit, besides the kernel, LibTorch and what all operations launch with
      kernel_srcs: .cu files besides `name`.cu
      kernel_hdrs: what they read besides `name`_kernel.h
      kernel_deps: what they read of other targets, besides //ops/common:device and //base:ceil_divide
      architectures: that it can run on alone; none: on all
      precompiled: as unit's
      **kwargs: as unit's
    """
    cuda_library(
        name = name + "_kernel",
        srcs = [name + ".cu"] + kernel_srcs,
        hdrs = [name + "_kernel.h"] + kernel_hdrs,
        architectures = architectures,
        deps = kernel_deps + ["//base:ceil_divide", "//ops/common:device", "@wheels//:cudart"],
    )
    unit(
        name = name,
        precompiled = precompiled,
        deps = deps + [":%s_kernel" % name, "//ops/common:launch_arguments", "@wheels//:torch"],
        **kwargs
    )

def room_tests(deps, size = "small", name = "tests", exclude = [], precompiled = "", **kwargs):
    """All tests of a room in one program.

    Args:
      deps: what they need besides gtest and gmock
      size: Bazel's test size
      name: of the target
      exclude: files that are tests of their own
      precompiled: as unit's
      **kwargs: as cc_test's
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = native.glob(["*_test.cc"], exclude = exclude),
        copts = TEST_COPTS + PRECOMPILED[precompiled].copts,
        deps = deps + ["@system//:gmock", "@system//:gtest_main"] + PRECOMPILED[precompiled].deps,
        **kwargs
    )
