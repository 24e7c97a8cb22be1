"""Defines local stand-ins for the repositories that Bazel 4 itself would download.

Bazel's own @bazel_tools loads @rules_cc, @rules_java and @remote_coverage_tools, and Bazel downloads these repositories
unless the workspace defines them first. Of their rules, Lockstep needs only those that are native to Bazel 4. With
these stand-ins a build needs no network after the packages are installed.
"""

_RULES = {
    "cc": [
        "cc_binary",
        "cc_import",
        "cc_library",
        "cc_proto_library",
        "cc_test",
        "cc_toolchain",
        "cc_toolchain_suite",
    ],
    "java": [
        "java_binary",
        "java_import",
        "java_library",
        "java_package_configuration",
        "java_plugin",
        "java_proto_library",
        "java_runtime",
        "java_test",
        "java_toolchain",
    ],
}

def _native_rules_impl(ctx):
    language = ctx.attr.language
    ctx.file("WORKSPACE")
    ctx.file("BUILD")
    ctx.file(language + "/BUILD")
    ctx.file(
        language + "/defs.bzl",
        "".join(["{rule} = native.{rule}\n".format(rule = rule) for rule in _RULES[language]]),
    )

_native_rules = repository_rule(
    implementation = _native_rules_impl,
    attrs = {"language": attr.string(values = _RULES.keys())},
)

def _coverage_tools_impl(ctx):
    ctx.file("WORKSPACE")
    ctx.file("BUILD", """filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
""")

_coverage_tools = repository_rule(implementation = _coverage_tools_impl)

def bazel_tools_stand_ins():
    _native_rules(name = "rules_cc", language = "cc")
    _native_rules(name = "rules_java", language = "java")
    _coverage_tools(name = "remote_coverage_tools")
