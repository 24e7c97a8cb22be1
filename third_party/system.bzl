"""@system: a repository with the libraries of the distribution's packages (third_party/apt-packages.txt).

These libraries come from the system for two reasons: the MPI library must belong to the user's mpirun, and Debian and
Ubuntu maintain the other libraries well. The compiler finds the headers of the libraries in its default search path, so
no target lists them. Only MPI's headers are elsewhere, and mpicc prints where.
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    # Leaves out the C++ functions, which Open MPI 5 does not have, so that the program runs with Open MPI 4 and 5.
    defines = ["OMPI_SKIP_MPICXX"],
    hdrs = glob({headers}),
    includes = {includes},
    linkopts = {linkopts},
)

cc_library(name = "benchmark", linkopts = ["-lbenchmark", "-lpthread"])
cc_library(name = "cli11")
# Open MPI loads the same libevent into the process.
cc_library(name = "event", linkopts = ["-levent_extra", "-levent_core"])
cc_library(name = "fmt", linkopts = ["-lfmt"])
cc_library(name = "gtest", linkopts = ["-lgtest", "-lpthread"])
cc_library(name = "gmock", linkopts = ["-lgmock"], deps = [":gtest"])
cc_library(name = "gtest_main", linkopts = ["-lgtest_main"], deps = [":gtest"])
cc_library(name = "highway", linkopts = ["-lhwy"])
cc_library(name = "hwloc", linkopts = ["-lhwloc"])
cc_library(name = "jpeg", linkopts = ["-ljpeg"])
cc_library(name = "json")
cc_library(name = "minizip", linkopts = ["-lminizip"])
cc_library(name = "pcre2", linkopts = ["-lpcre2-8"])
cc_library(name = "png", linkopts = ["-lpng"])
cc_library(name = "protobuf", linkopts = ["-lprotobuf", "-lpthread"])
cc_library(name = "webp", linkopts = ["-lwebp"])
cc_library(name = "zlib", linkopts = ["-lz"])
cc_library(name = "xxhash", defines = ["XXH_INLINE_ALL"])
"""

def _ask_mpicc(ctx, question):
    # The mpicc of Open MPI 5 does not start without HOME, which Bazel does not set for its tests.
    home = ctx.os.environ.get("HOME", "/")
    result = ctx.execute(["mpicc", "--showme:" + question], environment = {"HOME": home})
    if result.return_code:
        fail("mpicc does not answer: install what third_party/apt-packages.txt lists")
    return [word for word in result.stdout.strip().split(" ") if word]

def _system_packages_impl(ctx):
    includes = []
    for directory in _ask_mpicc(ctx, "incdirs"):
        name = "mpi_include_%d" % len(includes)
        ctx.symlink(directory, name)
        includes.append(name)
    ctx.file("BUILD", _BUILD.format(
        headers = repr([name + "/**/*.h" for name in includes]),
        includes = repr(includes),
        linkopts = repr(
            ["-L" + directory for directory in _ask_mpicc(ctx, "libdirs")] +
            ["-l" + library for library in _ask_mpicc(ctx, "libs")],
        ),
    ))

system_packages = repository_rule(
    implementation = _system_packages_impl,
    configure = True,
    local = True,
)
