#!/usr/bin/env python3
"""Checks that the newest Clang that is installed finds no error and no warning in some files of each kind. The program is
built with the system's compiler, and a newer system has a newer one, whose warnings would end its users' builds.

Usage: newest_compiler_test.py [FILE.cc ...]. Without file names the script checks FILES, and in the tests of a commit the
first three of them.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tidy_test

sys.path.insert(0, str(tidy_test.ROOT / "tests"))
import without_gpu  # noqa: E402

# Files in which newer compilers found faults, and files that include much of what their rooms have. Each file with
# LibTorch's headers takes ten seconds.
FILES = [
    "prepare/new/find_data.cc",
    "models/imported/fuse_attention.cc",
    "launch/job/supervised_job.cc",
    "launch/main.cc",
    "launch/cli/commands.cc",
    "launch/bundle/bundle.cc",
    "observe/sinks/exporter.cc",
    "data/tables/csv_delimiter.cc",
]
IN_COMMITS = 3  # how many of FILES the tests of a commit check
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]


def newest_clang():
    """Returns the highest number in the name of a clang++, and the path of this clang++; None if there is none."""
    found = []
    for folder in os.environ.get("PATH", "").split(":"):
        for path in pathlib.Path(folder).glob("clang++-*"):
            if match := re.fullmatch(r"clang\+\+-(\d+)", path.name):
                found.append((int(match[1]), str(path)))
    return max(found, default=None)


def skip(why):
    """Says why the test is skipped, in the report that Bazel asks for, too."""
    print(f"skipped: {why}")
    if path := os.environ.get("XML_OUTPUT_FILE"):
        name = pathlib.Path(__file__).stem
        pathlib.Path(path).write_text(without_gpu.report(name, [name], why))


def main(names):
    newest = newest_clang()
    own = int(re.search(r"version (\d+)", tidy_test.output_of("clang++", "--version"))[1])
    if newest is None or newest[0] <= own:
        skip(f"no Clang is installed that is newer than {own} (third_party/apt-packages-tests.txt)")
        return
    paths = names or (FILES if os.environ.get("LOCKSTEP_TIER") == "all" else FILES[:IN_COMMITS])
    with tempfile.TemporaryDirectory() as generated:
        tidy_test.generate(generated, *tidy_test.sources())
        command = [newest[1], "-fsyntax-only", *WARNINGS, *tidy_test.flags(generated)]

        def look(path):
            return path, subprocess.run([*command, path], cwd=tidy_test.ROOT, capture_output=True, text=True)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(look, paths))
    failed = [path for path, result in done if result.returncode != 0]
    for path, result in done:
        print(result.stderr, end="")
    print(f"Clang {newest[0]} looked at {len(paths)} files")
    if failed:
        sys.exit(f"Clang {newest[0]} finds faults in {' '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
