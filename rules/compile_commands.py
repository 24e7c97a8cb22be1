"""compile_commands.py ACTIONS OUTPUT_BASE ROOT: writes ROOT/compile_commands.json, which clangd and clang-tidy read.

ACTIONS is what `bazel aquery --output=jsonproto` says of C++ compilations. Paths become those of the workspace, so that
an editor shows its files and not Bazel's links to them. Headers that the compiler has kept are left out: a file includes
all that it uses, and an editor's Clang, of another version, cannot read them.
"""

import json
import os
import sys

# Options with a value behind them: where the compiler writes, and the header that it has kept.
LEFT_OUT = {"-MF", "-o", "-include"}


def in_workspace(argument, output_base):
    for prefix in ("", "-I"):
        if argument.startswith(prefix + "external/"):
            return prefix + os.path.join(output_base, argument[len(prefix) :])
    return argument


def command(arguments, output_base):
    """The compiler's arguments without those that it does not need to understand the file."""
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
            # Without position-independent code it is compiled a second time: one of them will do.
            entries.setdefault(source, {"directory": root, "file": source, "arguments": arguments})
    target = os.path.join(root, "compile_commands.json")
    with open(target + ".new", "w") as file:
        json.dump([entries[source] for source in sorted(entries)], file, indent=1)
    os.replace(target + ".new", target)
    print(f"{target}: {len(entries)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
