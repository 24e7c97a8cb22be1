"""Macros for the BUILD file of a room (rules/rooms.bzl).

A unit is foo.h and foo.cc, and optionally foo_test.cc and foo_bench.cc.

    unit(name = "crop", deps = [...])      foo.h and foo.cc as a library; foo_bench.cc as the program foo_bench
    op(name = "linear", deps = [...])      the same, and foo.cu (header foo_kernel.h), compiled by nvcc
    room_tests(deps = [...])               all of the room's foo_test.cc in one program, `tests`
    gtest(name = "crop_test", ...)         a test that needs a program of its own

All tests of a room are one program, because linking a program with LibTorch and loading LibTorch take long. This
command runs only some of the tests: `bazel test //data/images:tests --test_filter='Crop.*'`.
"""

load("//rules:cuda.bzl", "cuda_library")
load("//rules:precompiled.bzl", "precompiled_copts", "precompiled_deps")

def unit(name, deps = [], srcs = [], hdrs = [], bench_deps = [], precompiled = "core", copts = [], **kwargs):
    """Makes the library `name`, and the benchmark `name`_bench if the file `name`_bench.cc exists.

    Args:
      name: the name of the unit, and of its files without suffix
      deps: the dependencies of the library
      srcs: further source files besides `name`.cc
      hdrs: further headers besides `name`.h
      bench_deps: the dependencies of `name`_bench.cc besides the library
      precompiled: the precompiled header of the unit's files (rules/precompiled.bzl): "torch" if they include more of
        LibTorch than ATen/core/Tensor.h, otherwise "core"
      copts: as in cc_library
      **kwargs: further arguments of cc_library
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
    """Makes the benchmark `name` of the file `name`.cc."""
    program(name, deps = deps + ["@system//:benchmark"], testonly = True)

def program(name, deps, srcs = [], precompiled = "core", **kwargs):
    """Makes a program.

    Args:
      name: the name of the target, and of its file without .cc if `srcs` is empty
      deps: the dependencies of the files
      srcs: the files
      precompiled: as in unit()
      **kwargs: further arguments of cc_binary
    """
    native.cc_binary(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = precompiled_copts(precompiled),
        deps = deps + precompiled_deps(precompiled),
        **kwargs
    )

def op(name, deps = [], kernel_srcs = [], kernel_hdrs = [], kernel_deps = [], architectures = [], precompiled = "torch", **kwargs):
    """Makes an operation of ops/: a library `name`_kernel of CUDA kernels, and a unit `name` that uses it.

    Args:
      name: the name of the operation, and of its files without suffix
      deps: the dependencies of the unit, besides the kernels, LibTorch and //ops/common:launch_arguments
      kernel_srcs: further .cu files besides `name`.cu
      kernel_hdrs: further headers of the .cu files, besides `name`_kernel.h
      kernel_deps: the dependencies of the .cu files, besides //ops/common:device, //base:ceil_divide and cudart
      architectures: the only GPU architectures on which the kernels run; if empty, they run on all
      precompiled: as in unit()
      **kwargs: further arguments of unit()
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
    """Makes one program of all tests of a room.

    Args:
      exclude: the *_test.cc files that do not belong to this program
      name: the name of the target
      **kwargs: further arguments of gtest()
    """
    gtest(name, srcs = native.glob(["*_test.cc"], exclude = exclude), **kwargs)

def gtest(name, deps, srcs = [], size = "small", precompiled = "core", **kwargs):
    """Makes a test program that uses GoogleTest.

    Args:
      name: the name of the target, and of its file without .cc if `srcs` is empty
      deps: the dependencies of the files, besides gtest and gmock
      srcs: the files with tests
      size: Bazel's test size
      precompiled: as in unit()
      **kwargs: further arguments of cc_test
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = precompiled_copts(precompiled + "_test"),
        deps = deps + ["@system//:gmock", "@system//:gtest_main"] + precompiled_deps(precompiled + "_test"),
        **kwargs
    )
