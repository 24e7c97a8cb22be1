"""The macros of a room's BUILD file: a unit is foo.h, foo.cc, and where they are there foo_test.cc and foo_bench.cc.

    unit(name = "crop", deps = [...])      foo.h and foo.cc as a library; foo_bench.cc as the program foo_bench
    op(name = "linear", deps = [...])      the same with foo.cu behind foo_kernel.h, compiled by nvcc
    room_tests(deps = [...])               all of the room's foo_test.cc in one program, `tests`
    gtest(name = "crop_test", ...)         a test that needs a program of its own

One program a room, because each is linked with LibTorch and loads it: `bazel test //data/images:tests
--test_filter='Crop.*'` runs some of it.
"""

load("//rules:cuda.bzl", "cuda_library")
load("//rules:precompiled.bzl", "precompiled_copts", "precompiled_deps")

def unit(name, deps = [], srcs = [], hdrs = [], bench_deps = [], precompiled = "core", copts = [], **kwargs):
    """The library `name`, and the benchmark `name`_bench where there is one.

    Args:
      name: of the unit and of its files
      deps: of the library
      srcs: what belongs to it besides `name`.cc
      hdrs: what belongs to it besides `name`.h
      bench_deps: what `name`_bench.cc needs besides the library
      precompiled: which kept header its files begin with (rules/precompiled.bzl): "torch" if they include more of
        LibTorch than ATen/core/Tensor.h
      copts: as cc_library's
      **kwargs: as cc_library's
    """
    native.cc_library(
        name = name,
        srcs = native.glob([name + ".cc"]) + srcs,
        hdrs = native.glob([name + ".h"]) + hdrs,
        copts = copts + precompiled_copts(precompiled),
        deps = deps + precompiled_deps(precompiled),
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
        copts = precompiled_copts("core"),
        deps = deps + ["@system//:benchmark"] + precompiled_deps("core"),
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

def room_tests(exclude = [], name = "tests", **kwargs):
    """All tests of a room in one program.

    Args:
      exclude: files that are tests of their own
      name: of the target
      **kwargs: as gtest's
    """
    gtest(name, srcs = native.glob(["*_test.cc"], exclude = exclude), **kwargs)

def gtest(name, deps, srcs = [], size = "small", precompiled = "core", **kwargs):
    """A program of tests.

    Args:
      name: of the target, and of its file unless `srcs` says otherwise
      deps: what they need besides gtest and gmock
      srcs: the files
      size: Bazel's test size
      precompiled: as unit's
      **kwargs: as cc_test's
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = precompiled_copts(precompiled + "_test"),
        deps = deps + ["@system//:gmock", "@system//:gtest_main"] + precompiled_deps(precompiled + "_test"),
        **kwargs
    )
