#!/usr/bin/env python3
"""Compiles one .cu file, and fails if the file includes a header that its target does not declare.

nvcc finds every header below the execution root. Without this check a kernel could include the header of a target on
which its own target does not depend. For C++ files Bazel itself makes such a check, with the list of headers that the
compiler writes.

Usage: compile_cuda.py --label LABEL --source FILE.cu --object FILE.o --declared LIST [--ignored PREFIX ...] -- NVCC ...

LIST is a file with the paths of the headers that may be included, one on each line. Absolute paths (the system's
headers) and paths that begin with a PREFIX (headers of other repositories) are not checked. The script extends
the command after `--` by the source, the object, and the file to which nvcc writes the list of headers. The exit status
is nvcc's if nvcc fails, and 1 if the check fails. If the check fails, the object is removed.
"""

import argparse
import os
import subprocess
import sys
import tempfile


def included_files(dependencies):
    """Returns the files after the target in a make rule, which is the form in which compilers write the list of
    headers."""
    rule = dependencies.replace("\\\n", " ")
    names = rule.partition(" : ")[2] or rule.partition(": ")[2]
    # In a make rule, a space in a name is written as "\ ".
    return [name.replace("\0", " ") for name in names.replace("\\ ", "\0").split()]


def undeclared_files(included, declared, ignored):
    paths = {os.path.normpath(path) for path in included if not os.path.isabs(path)}
    return sorted(path for path in paths - declared if not path.startswith(tuple(ignored)))


def main():
    parser = argparse.ArgumentParser()
    for name in ("label", "source", "object", "declared"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--ignored", action="append", default=[])
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        list_of_headers = os.path.join(folder, "dependencies")
        compilation = [*arguments.command, "-MD", "-MF", list_of_headers, arguments.source, "-o", arguments.object]
        status = subprocess.run(compilation).returncode
        if status != 0:
            return status
        with open(list_of_headers) as file:
            included = included_files(file.read())
    with open(arguments.declared) as file:
        declared = {os.path.normpath(line) for line in file.read().splitlines()}
    undeclared = undeclared_files(included, declared, arguments.ignored)
    for header in undeclared:
        print(
            f"{arguments.source}: error: includes {header}, which {arguments.label} does not declare: "
            "add the target that has it to its deps",
            file=sys.stderr,
        )
    if undeclared:
        os.remove(arguments.object)
    return 1 if undeclared else 0


if __name__ == "__main__":
    sys.exit(main())
