"""Defines all external repositories that Lockstep needs, in one call.

A workspace that uses Lockstep has these lines in its own WORKSPACE:

    local_repository(name = "lockstep", path = "/where/lockstep/is")
    load("@lockstep//third_party:workspace.bzl", "lockstep_dependencies")
    lockstep_dependencies()
"""

load("//third_party:bazel_tools.bzl", "bazel_tools_stand_ins")
load("//third_party:system.bzl", "system_packages")
load("//third_party:wheels.bzl", "python_wheels")

def lockstep_dependencies():
    bazel_tools_stand_ins()
    system_packages(name = "system")
    python_wheels(name = "wheels")
