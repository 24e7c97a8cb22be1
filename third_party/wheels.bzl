"""@wheels: a repository with LibTorch, the CUDA toolkit, CUTLASS, cuDNN, its frontend and NCCL, from wheels in .venv, or
in the environment that the variable LOCKSTEP_VENV names.

With wheels, third_party/torch/2.11.txt pins the same version of each library on every machine, and these are the
versions that PyTorch's users have. No CUDA toolkit has to be installed on the system. The PyTorch with which the tests
compare is the same build as the LibTorch that Lockstep uses.

The libraries are linked with -L and an rpath. They are not listed in `srcs`, because Bazel would then make symlinks to
the shared libraries. The $ORIGIN in libtorch_cuda.so would be the folder of the symlink, in which libtorch_nvshmem.so
is not found.

Some folders of torch/include are left out, because they have old copies of the headers of protobuf, fmt and pybind11,
which would hide the system's headers.

The wheels of CUDA 13 share a folder of include, lib and bin. Those of CUDA 12 have a folder each, of which the
repository makes one like that of CUDA 13.
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
    hdrs = glob(["nvidia/{cuda}/include/**"]),
    includes = ["nvidia/{cuda}/include"],
    linkopts = [
{cuda_libraries}
        "-l:libcudart.so.{major}",
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
        "-l:libnvrtc.so.{major}",
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

# The target `cudart` has the headers of these libraries.
cc_library(
    name = "nvrtc",
    linkopts = ["-l:libnvrtc.so.{major}"],
    deps = [":cudart"],
)

cc_library(
    name = "cublaslt",
    linkopts = ["-l:libcublasLt.so.{major}"],
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

filegroup(name = "nvcc", srcs = ["nvidia/{cuda}/bin/nvcc"])

filegroup(
    name = "nvcc_files",
    srcs = glob(["nvidia/{cuda}/bin/**", "nvidia/{cuda}/nvvm/**"]),
)
"""

_SAY = """
import runpy, sysconfig
site = sysconfig.get_paths()["purelib"]
torch = runpy.run_path(site + "/torch/version.py")
print(site, torch["__version__"].split("+")[0], torch["cuda"])
"""

# Links the headers of CUDA 12's wheels into one folder. Those of nvcc's wheel come first, because they belong to nvcc.
_MERGE = """
import os, pathlib, sys
site, merged = map(pathlib.Path, sys.argv[1:])
for name in ("cuda_nvcc", *sorted(set(os.listdir(site)) - {"cudnn", "nccl", "nvml_dev"})):
    folder = site / name / "include"
    for header in folder.rglob("*.*"):
        link = merged / header.relative_to(folder)
        if header.is_file() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(header)
"""

def _merge_cuda_12(ctx, python, site):
    """Makes nvidia/cu12 of the wheels of CUDA 12."""
    for entry in ctx.path(site + "/nvidia").readdir():
        ctx.symlink(entry, "nvidia/" + entry.basename)
    result = ctx.execute([python, "-c", _MERGE, site + "/nvidia", ctx.path("nvidia/cu12/include")])
    if result.return_code:
        fail("the headers of CUDA 12 cannot be linked: " + result.stderr)
    for folder in ["bin", "nvvm"]:
        ctx.symlink(site + "/nvidia/cuda_nvcc/" + folder, "nvidia/cu12/" + folder)

def _python_wheels_impl(ctx):
    root = ctx.path(Label("//:WORKSPACE")).dirname
    venv = ctx.path(ctx.os.environ["LOCKSTEP_VENV"]) if "LOCKSTEP_VENV" in ctx.os.environ else root.get_child(".venv")
    python = venv.get_child("bin").get_child("python")
    result = ctx.execute([python, "-c", _SAY])
    if result.return_code:
        fail("no Python environment in .venv: run ./lockstep once, it makes it")
    site, torch, cuda = result.stdout.strip().rsplit(" ", 2)
    major = cuda.split(".")[0]
    for entry in ctx.path(site + "/torch/include").readdir():
        if entry.basename not in _SHADOWING:
            ctx.symlink(entry, "include/" + entry.basename)
    if major == "12":
        _merge_cuda_12(ctx, python, site)
        folders = ["cuda_runtime", "cublas", "cuda_nvrtc"]
    else:
        ctx.symlink(site + "/nvidia", "nvidia")
        folders = ["cu" + major]
    ctx.symlink(site + "/include", "cudnn_frontend")
    ctx.symlink(site + "/cutlass_library/source", "cutlass")

    # python.sh is a script and no symbolic link, because Python would take the link's folder for its environment.
    ctx.file("python.sh", "#!/bin/sh\nexec %s \"$@\"\n" % python)
    ctx.file("version.bzl", "TORCH = \"%s\"\n" % torch)
    libraries = []
    for folder in folders:
        libraries += ["-L{site}/nvidia/%s/lib" % folder, "-Wl,-rpath,{site}/nvidia/%s/lib" % folder]
    build = _BUILD.replace("{cuda_libraries}", "\n".join(["        \"%s\"," % flag for flag in libraries]))
    ctx.file("BUILD", build.replace("{cuda}", "cu" + major).replace("{major}", major).replace("{site}", site))

python_wheels = repository_rule(
    implementation = _python_wheels_impl,
    configure = True,
    environ = ["LOCKSTEP_VENV"],
    local = True,
)
