"""mpi_test: a gtest that runs as several ranks on this machine."""

load("//rules:precompiled.bzl", "precompiled_copts", "precompiled_deps")

def mpi_test(name, srcs, deps, ranks, precompiled = "core"):
    """A test binary `name`, and for each number of ranks a test `name`_N that runs it under mpirun.

    Args:
      name: the binary's name
      srcs: gtests that use World() of comm/testing/mpi_test_world.h; main() comes with it
      deps: what they need besides
      ranks: list of numbers of ranks
      precompiled: as unit's (rules/unit.bzl)
    """
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        copts = precompiled_copts(precompiled + "_test"),
        deps = deps + ["//comm/testing:mpi_test_main", "@system//:gmock"] + precompiled_deps(precompiled + "_test"),
    )
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            size = "small",
            srcs = ["//comm/testing:mpirun.sh"],
            args = [str(n), "$(location :%s)" % name],
            data = [":" + name],
        )
