"""cuda_library: compiles .cu files into a library that cc_* rules can link, with the nvcc of the Python wheels.

This is a rule of Lockstep's own, because Bazel 4 has no rule for CUDA. The public rule sets would have to be
downloaded, and they need a CUDA toolkit that is installed on the system. The rule runs nvcc and ar, and returns a
CcInfo.

The build setting //rules:cuda_architectures names the architectures that get machine code. For one architecture nvcc
takes a fifth of the time that it takes for all five. PTX for the newest of the named architectures is added, so that
the program also runs on newer GPUs. The value `none` is for a machine without a GPU: the library has no machine code,
only PTX for the newest architecture, and kernels for particular architectures are left out (LOCKSTEP_WITHOUT_GPU_CODE),
because they use CUTLASS's templates, which take the longest to compile. The objects of each list of architectures have
names of their own, so that a build for one list does not remove what a build for another list has made.
compile_cuda.py runs nvcc, and checks that a kernel includes only the headers that its target declares, as Bazel checks
it for C++ files. """

# The architectures for which the value `all` stands, from Turing (T4) to Hopper (H100).
_ALL = ["75", "80", "86", "89", "90"]

# compile_cuda.py does not check headers below these paths, because the targets of @system do not list their headers.
_IGNORED = ["external/system/", "external/wheels/"]

CudaArchitecturesInfo = provider(fields = {"names": "compute capabilities without the point, ascending"})

def _cuda_architectures_impl(ctx):
    value = ctx.build_setting_value
    if value == "all":
        return CudaArchitecturesInfo(names = _ALL)
    if value == "none":
        return CudaArchitecturesInfo(names = [])
    names = value.split(",")
    for name in names:
        if not name.isdigit() or int(name) < int(_ALL[0]):
            fail("%s: '%s' is neither 'all', 'none' nor a list of compute capabilities from %s on, such as 90 or 75,90" %
                 (ctx.label, value, _ALL[0]))

    # Sorts the names as numbers, so that 100 comes after 90.
    return CudaArchitecturesInfo(names = [str(number) for number in sorted({int(name): None for name in names})])

cuda_architectures = rule(
    implementation = _cuda_architectures_impl,
    build_setting = config.string(flag = True),
)

def _generate_code(architectures):
    if not architectures:
        return ["-gencode=arch=compute_{0},code=compute_{0}".format(_ALL[-1]), "-DLOCKSTEP_WITHOUT_GPU_CODE"]
    flags = ["-gencode=arch=compute_{0},code=sm_{0}".format(name) for name in architectures]

    # PTX for an architecture whose name ends in a letter, such as 90a, runs on no newer GPU, so it is not added.
    if architectures[-1].isdigit():
        flags.append("-gencode=arch=compute_{0},code=compute_{0}".format(architectures[-1]))
    return flags

# Returns the path of `file` for the list of headers that may be included, or None if compile_cuda.py does not check the
# file.
def _checked_path(file):
    for prefix in _IGNORED:
        if file.path.startswith(prefix):
            return None
    return file.path

def _cuda_library_impl(ctx):
    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    quote_includes = depset(transitive = [context.quote_includes for context in contexts]).to_list()
    system_includes = depset(transitive = [context.system_includes for context in contexts]).to_list()
    headers = depset(
        ctx.files.srcs + ctx.files.hdrs,
        transitive = [context.headers for context in contexts],
    )
    asked = ctx.attr._architectures[CudaArchitecturesInfo].names
    architectures = asked and (ctx.attr.architectures or asked)

    name = ctx.label.name + "." + ("_".join(["sm"] + architectures) if architectures else "ptx")
    declared = ctx.actions.declare_file("_objs/{}/declared_headers".format(name))
    args = ctx.actions.args()
    args.set_param_file_format("multiline")
    args.add_all(headers, map_each = _checked_path)
    ctx.actions.write(declared, args)

    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("_objs/{}/{}.o".format(name, source.basename))
        args = ctx.actions.args()
        args.add("--label", str(ctx.label))
        args.add("--source", source)
        args.add("--object", object)
        args.add("--declared", declared)
        args.add_all(_IGNORED, before_each = "--ignored")
        args.add("--")
        args.add(ctx.file._nvcc)

        # Without NDEBUG, every GPU thread would check CUTLASS's assertions.
        args.add_all(["-c", "-O3", "-DNDEBUG", "-std=c++20", "--expt-relaxed-constexpr"])
        args.add_all(["-Xcompiler", "-fPIC,-Wall,-Wextra", "--Werror=all-warnings"])
        args.add_all(_generate_code(architectures))
        args.add("-I" + (ctx.label.workspace_root or "."))
        args.add_all(quote_includes, before_each = "-I")
        args.add_all(system_includes, before_each = "-isystem")
        ctx.actions.run(
            executable = ctx.file._compile,
            arguments = [args],
            inputs = depset(ctx.files._nvcc_files + [ctx.file._compile, declared], transitive = [headers]),
            outputs = [object],
            mnemonic = "CudaCompile",
            progress_message = "Compiling " + source.path,
            use_default_shell_env = True,
        )
        objects.append(object)

    archive = ctx.actions.declare_file("lib{}.a".format(name))
    args = ctx.actions.args()
    args.add("rcsD", archive)
    args.add_all(objects)
    ctx.actions.run(
        executable = toolchain.ar_executable,
        arguments = [args],
        inputs = objects,
        outputs = [archive],
        mnemonic = "CudaArchive",
    )

    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    library = cc_common.create_library_to_link(
        actions = ctx.actions,
        cc_toolchain = toolchain,
        feature_configuration = features,
        pic_static_library = archive,
        static_library = archive,
    )
    own = CcInfo(
        compilation_context = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs)),
        linking_context = cc_common.create_linking_context(
            linker_inputs = depset([cc_common.create_linker_input(
                libraries = depset([library]),
                owner = ctx.label,
            )]),
        ),
    )
    return [
        DefaultInfo(files = depset([archive])),
        cc_common.merge_cc_infos(
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
            direct_cc_infos = [own],
        ),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        # Compute capabilities without the point, in ascending order. If the list is empty, the
        # architectures of the build setting are used.
        "architectures": attr.string_list(),
        "_architectures": attr.label(
            default = Label("//rules:cuda_architectures"),
            providers = [CudaArchitecturesInfo],
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_compile": attr.label(allow_single_file = True, default = Label("//rules:compile_cuda.py")),
        "_nvcc": attr.label(allow_single_file = True, default = "@wheels//:nvcc"),
        "_nvcc_files": attr.label(default = "@wheels//:nvcc_files"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
