"""precompiled_header: a header that the compiler reads once and not anew in each file.

Why: parsing LibTorch's headers and instantiating what their inline functions ask for takes 5 of the 8 s that a file of
operations compiles for. Clang keeps both, the templates' instances, too (-fpch-instantiate-templates), and reads of
them what a file names; beginning with all of torch_precompiled.h costs an empty file 0.4 s, with core_precompiled.h
0.1 s (clang 14, LibTorch 2.11, AMD EPYC).

A file still includes all that it uses. --//rules:precompiled=false leaves the kept headers out, as any other compiler
does, which shows what a file forgot to include.
"""

PrecompiledInfo = provider(fields = {"enabled": "whether headers are kept"})

def precompiled_copts(name):
    """The flags with which a file begins with rules/`name`_precompiled.h; its target depends on that, too."""
    repository = native.repository_name()[1:]
    folder = "$(BINDIR)/" + ("external/%s/" % repository if repository else "") + "rules/precompiled/"
    return ["-include", "%s%s_precompiled.h" % (folder, name)]

def precompiled_deps(name):
    """Returns the labels on which a target with precompiled_copts(name) depends."""
    return ["//rules:%s_precompiled" % name]

# Clang keeps absolute paths, and a clone's results are another clone's, too: each finds its files below
# /proc/self/cwd. That a file has another time there says nothing.
_KEEP = ["-fpch-instantiate-templates", "-working-directory=/proc/self/cwd", "-Xclang", "-fno-pch-timestamp"]

def _precompiled_header_impl(ctx):
    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    header = ctx.actions.declare_file("precompiled/%s" % ctx.file.hdr.basename)
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = [header] + ctx.files.hdrs
    if ctx.attr._enabled[PrecompiledInfo].enabled and toolchain.compiler == "clang":
        ctx.actions.expand_template(template = ctx.file.hdr, output = header, substitutions = {})
        compiled = ctx.actions.declare_file("precompiled/%s.pch" % ctx.file.hdr.basename)
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
            quote_include_directories = depset([ctx.label.workspace_root or "."], transitive = [context.quote_includes for context in contexts]),
            system_include_directories = depset(transitive = [context.system_includes for context in contexts]),
            # As Bazel compiles for a program; a kept header of another kind is not used.
            use_pic = ctx.var["COMPILATION_MODE"] != "opt",
        )
        ctx.actions.run(
            executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = "c++-compile"),
            arguments = ["-x", "c++-header"] + _KEEP + cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = "c++-compile",
                variables = variables,
            ),
            env = cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = "c++-compile",
                variables = variables,
            ),
            inputs = depset([header] + ctx.files.hdrs, transitive = [context.headers for context in contexts] + [toolchain.all_files]),
            outputs = [compiled],
            mnemonic = "CppPrecompile",
        )
    else:
        ctx.actions.write(header, "")
    own = cc_common.create_compilation_context(headers = depset(headers))

    # The headers of its dependencies without their libraries: a program links those that it asks for itself.
    return [
        DefaultInfo(files = depset(headers)),
        cc_common.merge_cc_infos(cc_infos = [CcInfo(compilation_context = context) for context in [own] + contexts]),
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
        # Headers of this folder that it includes.
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_enabled": attr.label(default = Label("//rules:precompiled")),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
