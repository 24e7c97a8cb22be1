"""mpi_test: makes gtests that run as several ranks on this machine."""

load("//rules:unit.bzl", "program")

def mpi_test(name, srcs, deps, ranks, precompiled = "core"):
    """Makes a test binary `name`, and for each number N in `ranks` a test `name`_N that runs the binary as N ranks.

    Args:
      name: the name of the binary
      srcs: the files with gtests that use World() of comm/testing/mpi_test_world.h; main() is linked to them
      deps: further dependencies of `srcs`
      ranks: the list of the numbers of ranks
      precompiled: as in unit() (rules/unit.bzl)
    """
    program(
        name,
        testonly = True,
        srcs = srcs,
        precompiled = precompiled + "_test",
        deps = deps + ["//comm/testing:mpi_test_main", "@system//:gmock"],
    )
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            size = "small",
            srcs = ["//comm/testing:mpirun.sh"],
            args = [str(n), "$(location :%s)" % name],
            data = [":" + name],
        )
