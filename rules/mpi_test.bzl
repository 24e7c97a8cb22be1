"""mpi_test: a gtest that runs as several ranks on this machine."""

def mpi_test(name, srcs, deps, ranks):
    """A test binary `name`, and for each number of ranks a test `name`_N that runs it under mpirun.

    Args:
      name: the binary's name
      srcs: gtests that use World() of comm/mpi_test_world.h; main() comes with it
      deps: what they need besides
      ranks: list of numbers of ranks
    """
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        deps = deps + ["//comm:mpi_test_main"],
    )
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            size = "small",
            srcs = ["//comm:mpirun.sh"],
            args = [str(n), "$(location :%s)" % name],
            data = [":" + name],
            tags = ["cpu:2"],
        )
