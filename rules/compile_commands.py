"""compile_commands.py ACTIONS OUTPUT_BASE ROOT: writes ROOT/compile_commands.json, which clangd and clang-tidy read.

ACTIONS is a file with the output of `bazel aquery --output=jsonproto` for the C++ compilations. The commands run in
ROOT, so that an editor shows the workspace's files and not Bazel's links to them. Paths that begin with external/
become paths below OUTPUT_BASE, where Bazel keeps other repositories. Precompiled headers are left out, because an
editor's Clang has another version and cannot read them. The commands work without them, because each file includes all
headers that it uses.
"""

import json
import os
import sys

# The options that are left out together with the value after them: the compiler's output files, and the precompiled
# header.
LEFT_OUT = {"-MF", "-o", "-include"}


def in_workspace(argument, output_base):
    for prefix in ("", "-I"):
        if argument.startswith(prefix + "external/"):
            return prefix + os.path.join(output_base, argument[len(prefix) :])
    return argument


def command(arguments, output_base):
    """Returns the compiler's arguments without those that name output files or the precompiled header, and without -MD,
    -Werror and -frandom-seed."""
    kept = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument in LEFT_OUT:
            next(remaining)
        elif argument not in {"-MD", "-Werror"} and not argument.startswith("-frandom-seed="):
            kept.append(in_workspace(argument, output_base))
    return kept


def main(actions, output_base, root):
    entries = {}
    with open(actions) as file:
        for action in json.load(file).get("actions", []):
            arguments = command(action["arguments"], output_base)
            source = arguments[arguments.index("-c") + 1]
            # Bazel may compile a file twice, with and without position-independent code. The first of these commands is
            # kept.
            entries.setdefault(source, {"directory": root, "file": source, "arguments": arguments})
    target = os.path.join(root, "compile_commands.json")
    with open(target + ".new", "w") as file:
        json.dump([entries[source] for source in sorted(entries)], file, indent=1)
    os.replace(target + ".new", target)
    print(f"{target}: {len(entries)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
