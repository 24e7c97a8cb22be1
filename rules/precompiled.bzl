"""precompiled_header: makes a precompiled header, which the compiler parses once and not for each file.

Compiling a file of ops/ takes 8 s, of which 5 s go to parsing LibTorch's headers and to instantiating the templates
that their inline functions use. A precompiled header of Clang holds the parsed headers and, with
-fpch-instantiate-templates, the instantiated templates. From a precompiled header Clang loads only what a file uses:
compiling an empty file takes 0.4 s with torch_precompiled.h, and 0.1 s with core_precompiled.h (clang 14, LibTorch
2.11, AMD EPYC).

A file still includes all headers that it uses. With --//rules:precompiled=false, and with any compiler other than
Clang, the precompiled headers are empty, so that such a build fails if a file does not include a header that it uses.
"""

load("@wheels//:version.bzl", "TORCH")

PrecompiledInfo = provider(fields = {"enabled": "whether headers are precompiled"})

# Bazel takes the headers that a file reads from a precompiled header for the system's, and does not compile the file again
# when they change. With this flag it does when LibTorch has another version.
_VERSION = ["-DLOCKSTEP_TORCH_VERSION=" + TORCH]

def precompiled_copts(name):
    """Returns the compiler flags that include rules/`name`_precompiled.h first. The target also needs
    precompiled_deps(name)."""
    repository = native.repository_name()[1:]
    folder = "$(BINDIR)/" + ("external/%s/" % repository if repository else "") + "rules/precompiled/"
    return ["-include", "%s%s_precompiled.h" % (folder, name)] + _VERSION

def precompiled_deps(name):
    """Returns the labels on which a target with precompiled_copts(name) depends."""
    return ["//rules:%s_precompiled" % name]

# A precompiled header of Clang contains absolute paths. Below /proc/self/cwd these paths are valid in every clone, so
# that the clones can share the precompiled header through Bazel's cache. -fno-pch-timestamp lets Clang accept it
# although the modification times of the headers in it differ between clones.
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
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + _VERSION,
            quote_include_directories = depset([ctx.label.workspace_root or "."], transitive = [context.quote_includes for context in contexts]),
            system_include_directories = depset(transitive = [context.system_includes for context in contexts]),
            # Bazel compiles a program's files with the same value of this option. Clang rejects a precompiled header
            # that was made with another value.
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

    # Passes on neither the headers nor the libraries of `deps`. A target that includes a header of LibTorch itself must
    # depend on LibTorch, and fails to compile if it does not.
    return [
        DefaultInfo(files = depset(headers)),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(headers))),
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
        # The headers of this folder that `hdr` includes.
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_enabled": attr.label(default = Label("//rules:precompiled")),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
