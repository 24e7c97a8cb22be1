"""precompiled_header: a header that GCC reads once and not anew in each file.

Why: ATen/ATen.h and autograd's headers take 4 of the 8 s that a file of operations compiles for. A target that
depends on this one and has its PRECOMPILED among its copts begins with the header as GCC kept it.

There are several, because each costs something, too: GCC instantiates anew in each file all templates that the kept
functions ask for, which takes 0.4 s after ATen/core/Tensor.h, 1.6 s after ATen/ATen.h and 3.0 s after the headers of
autograd and modules, too (GCC 12, LibTorch 2.11, an empty file).

A file still includes all that it uses: where the kept form does not fit the flags (sanitizers, another
compiler) the compiler reads the text instead, and --//rules:precompiled=false leaves both out, which shows
what a file forgot to include.
"""

PrecompiledInfo = provider(fields = {"enabled": "whether headers are compiled once"})

# Each kept header's name -> the flags and the targets of what begins with it. No name: nothing is kept.
PRECOMPILED = {
    "": struct(copts = [], deps = []),
    "core": struct(copts = ["-include", "core_precompiled.h"], deps = ["//rules:core_precompiled"]),
    "tensor": struct(copts = ["-include", "tensor_precompiled.h"], deps = ["//rules:tensor_precompiled"]),
    "torch": struct(copts = ["-include", "torch_precompiled.h"], deps = ["//rules:torch_precompiled"]),
}

def _precompiled_header_impl(ctx):
    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    header = ctx.actions.declare_file("precompiled/%s" % ctx.file.hdr.basename)
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = [header]
    if ctx.attr._enabled[PrecompiledInfo].enabled:
        ctx.actions.expand_template(template = ctx.file.hdr, output = header, substitutions = {})
        compiled = ctx.actions.declare_file("precompiled/%s.gch" % ctx.file.hdr.basename)
        headers.append(compiled)
        features = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features,
            unsupported_features = ctx.disabled_features,
        )
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            source_file = header.path,
            output_file = compiled.path,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
            quote_include_directories = depset(transitive = [context.quote_includes for context in contexts]),
            system_include_directories = depset(transitive = [context.system_includes for context in contexts]),
            # As Bazel compiles for a program; a kept header of another kind is not used.
            use_pic = ctx.var["COMPILATION_MODE"] != "opt",
        )
        ctx.actions.run(
            executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = "c++-compile"),
            arguments = ["-x", "c++-header"] + cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = "c++-compile",
                variables = variables,
            ),
            env = cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = "c++-compile",
                variables = variables,
            ),
            inputs = depset([header], transitive = [context.headers for context in contexts] + [toolchain.all_files]),
            outputs = [compiled],
            mnemonic = "CppPrecompile",
        )
    else:
        ctx.actions.write(header, "")
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(headers),
        system_includes = depset([header.dirname]),
    ))
    return [
        DefaultInfo(files = depset(headers)),
        cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps], direct_cc_infos = [own]),
    ]

def _precompiled_setting_impl(ctx):
    return PrecompiledInfo(enabled = ctx.build_setting_value)

precompiled_setting = rule(
    implementation = _precompiled_setting_impl,
    build_setting = config.bool(flag = True),
)

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "hdr": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_enabled": attr.label(default = Label("//rules:precompiled")),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
