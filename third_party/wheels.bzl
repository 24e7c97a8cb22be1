"""@wheels: a repository with LibTorch, the CUDA toolkit, CUTLASS, cuDNN, its frontend and NCCL, from wheels in .venv, or
in the environment that the variable LOCKSTEP_VENV names.

With wheels, third_party/requirements.txt pins the same version of each library on every machine, and these are the
versions that PyTorch's users have. No CUDA toolkit has to be installed on the system. The PyTorch with which the tests
compare is the same build as the LibTorch that Lockstep uses.

The libraries are linked with -L and an rpath. They are not listed in `srcs`, because Bazel would then make symlinks to
the shared libraries. The $ORIGIN in libtorch_cuda.so would be the folder of the symlink, in which libtorch_nvshmem.so
is not found.

Some folders of torch/include are left out, because they have old copies of the headers of protobuf, fmt and pybind11,
which would hide the system's headers.
"""

_SHADOWING = ["fmt", "google", "pybind11"]

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "torch",
    hdrs = glob(["include/**/*.h", "include/**/*.hpp", "include/**/*.cuh"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = [
        "-L{site}/torch/lib",
        "-Wl,-rpath,{site}/torch/lib",
        # These libraries register their operators when they are loaded. The linker must keep them although
        # the program names few of their symbols.
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-ltorch_cuda",
        "-lc10",
        "-lc10_cuda",
        "-Wl,--as-needed",
        "-Wl,--allow-shlib-undefined",
    ],
    deps = [":cudart"],
)

cc_library(
    name = "cudart",
    hdrs = glob(["nvidia/cu13/include/**"]),
    includes = ["nvidia/cu13/include"],
    linkopts = [
        "-L{site}/nvidia/cu13/lib",
        "-Wl,-rpath,{site}/nvidia/cu13/lib",
        "-l:libcudart.so.13",
    ],
)

# cuDNN's graph interface consists of headers, which its wheel puts beside the packages. Some of these headers
# compile kernels at run time.
cc_library(
    name = "cudnn",
    # Lockstep does not write graphs as JSON. The code that reads and writes JSON would take half of the time in which
    # a file compiles.
    defines = ["CUDNN_FRONTEND_SKIP_JSON_LIB"],
    hdrs = glob(["nvidia/cudnn/include/**", "cudnn_frontend/**"]),
    includes = ["nvidia/cudnn/include", "cudnn_frontend"],
    linkopts = [
        "-L{site}/nvidia/cudnn/lib",
        "-Wl,-rpath,{site}/nvidia/cudnn/lib",
        "-l:libcudnn.so.9",
        "-L{site}/nvidia/cu13/lib",
        "-l:libnvrtc.so.13",
    ],
    deps = [":cudart"],
)

# This target has headers and no library.
cc_library(
    name = "cutlass",
    hdrs = glob(["cutlass/include/**", "cutlass/tools/util/include/**"]),
    includes = ["cutlass/include", "cutlass/tools/util/include"],
    deps = [":cudart"],
)

# The target `cudart` has the headers of this library.
cc_library(
    name = "cublaslt",
    linkopts = ["-l:libcublasLt.so.13"],
    deps = [":cudart"],
)

cc_library(
    name = "nccl",
    hdrs = glob(["nvidia/nccl/include/**"]),
    includes = ["nvidia/nccl/include"],
    linkopts = [
        "-L{site}/nvidia/nccl/lib",
        "-Wl,-rpath,{site}/nvidia/nccl/lib",
        "-l:libnccl.so.2",
    ],
    deps = [":cudart"],
)

# This target has the header of the driver's library. A program loads that library itself, with dlopen().
cc_library(
    name = "nvml",
    hdrs = ["nvidia/nvml_dev/include/nvml.h"],
    includes = ["nvidia/nvml_dev/include"],
    linkopts = ["-ldl"],
)

exports_files(["python.sh"])

filegroup(name = "nvcc", srcs = ["nvidia/cu13/bin/nvcc"])

filegroup(
    name = "nvcc_files",
    srcs = glob(["nvidia/cu13/bin/**", "nvidia/cu13/nvvm/**"]),
)
"""

def _python_wheels_impl(ctx):
    root = ctx.path(Label("//:WORKSPACE")).dirname
    venv = ctx.path(ctx.os.environ["LOCKSTEP_VENV"]) if "LOCKSTEP_VENV" in ctx.os.environ else root.get_child(".venv")
    python = venv.get_child("bin").get_child("python")
    result = ctx.execute([
        python,
        "-c",
        "import importlib.metadata as m, sysconfig as s; print(s.get_paths()['purelib'], m.version('torch'))",
    ])
    if result.return_code:
        fail("no Python environment in .venv: run ./lockstep once, it makes it")
    site, torch = result.stdout.strip().rsplit(" ", 1)
    for entry in ctx.path(site + "/torch/include").readdir():
        if entry.basename not in _SHADOWING:
            ctx.symlink(entry, "include/" + entry.basename)
    ctx.symlink(site + "/nvidia", "nvidia")
    ctx.symlink(site + "/include", "cudnn_frontend")
    ctx.symlink(site + "/cutlass_library/source", "cutlass")

    # python.sh is a script and no symbolic link, because Python would take the link's folder for its environment.
    ctx.file("python.sh", "#!/bin/sh\nexec %s \"$@\"\n" % python)
    ctx.file("version.bzl", "TORCH = \"%s\"\n" % torch)
    ctx.file("BUILD", _BUILD.replace("{site}", site))

python_wheels = repository_rule(
    implementation = _python_wheels_impl,
    configure = True,
    environ = ["LOCKSTEP_VENV"],
    local = True,
)
