#!/usr/bin/env python3
"""header_names_test.py PROGRAM

Checks that Bazel compiles a file again when a header of Lockstep that the file includes has changed. For this, the .d
files that the compiler writes for Bazel must name such headers by relative paths, because Bazel takes the headers with
other paths for the system's (.bazelrc). The .d files are those beside PROGRAM, which Bazel has built."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_OTHERS = ("external/", "bazel-out/")  # libraries' headers, and the precompiled headers


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve().parents[1]
    compiled, wrong = 0, []
    for file in binaries.glob("**/_objs/**/*.d"):
        names = file.read_text().split()
        # Bazel keeps the files of targets that there are no longer.
        if not any(name.endswith(".cc") and (ROOT / name).is_file() for name in names):
            continue
        compiled += 1
        for name in re.findall(r"/proc/self/cwd/(\S+)", " ".join(names)):
            is_precompiled = re.fullmatch(r"rules/\w+_precompiled\.h", name)
            if not name.startswith(OF_OTHERS) and not is_precompiled:
                wrong.append(f"{file.relative_to(binaries)} names {name} by an absolute path")
    print(*wrong[:20], f"{compiled} files were compiled, {len(wrong)} headers have absolute paths", sep="\n")
    sys.exit(compiled < 100 or bool(wrong))


if __name__ == "__main__":
    main()
