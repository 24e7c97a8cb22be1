#!/usr/bin/env python3
"""Checks that clang-tidy finds no fault in the .cc files (.clang-tidy lists its checks).

Usage: tidy_test.py [FILE.cc ...]. Without file names the script checks every .cc file of the workspace that is not
known to be clean.

Checking all files takes hours on one core. So a file that was found clean is not checked again until the file, one of
this repository's headers that it includes, .clang-tidy or clang-tidy changes: .lockstep/tidy has the digests of all
clean files. In the tests of a commit the script begins no further file after 20 seconds, and with LOCKSTEP_TIER=all
after five minutes. In both cases the script runs without Clang's static analyser, which takes two thirds of the time.
Files edited since the last commit but one are checked first. They are followed by the other files without LibTorch's
headers, and, only with LOCKSTEP_TIER=all, by the other files with LibTorch's headers. Within each of the last two
groups the order is random and differs for each commit. With file names, or with TIDY=all (./lockstep test --soak tidy),
the script runs with the analyser until all these files were checked.
"""

import concurrent.futures
import functools
import hashlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = ROOT / ".lockstep/tidy"
BUDGET_S = 300 if os.environ.get("LOCKSTEP_TIER") == "all" else 20
WITHOUT_ANALYSER = "--checks=-clang-analyzer-*"
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
# The folders of LibTorch's headers. A compiler needs ten seconds to parse these headers.
LIBTORCH = ("ATen/", "c10/", "torch/")
# Include folders below site-packages. The compiler searches them after the system's folders, because LibTorch contains
# old copies of libraries that the system also has.
WHEELS = [
    "torch/include", "torch/include/torch/csrc/api/include", "nvidia/cu13/include", "nvidia/cudnn/include",
    "nvidia/nccl/include", "nvidia/nvml_dev/include", "include", "cutlass_library/source/include",
    "cutlass_library/source/tools/util/include",
]
FLAGS = ["-std=c++20", "-DNDEBUG", "-DXXH_INLINE_ALL", "-DOMPI_SKIP_MPICXX", "-I."]


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def sources():
    """Returns the paths, relative to ROOT, of the .cc files and of the .proto files."""
    found = {".cc": [], ".proto": []}
    for folder, folders, names in os.walk(ROOT):
        here = pathlib.Path(folder).relative_to(ROOT)
        others = ("bazel-", "runs") if here == pathlib.Path() else ()
        folders[:] = [name for name in folders if not name.startswith((".", *others))]
        for name in names:
            if os.path.splitext(name)[1] in found:
                found[os.path.splitext(name)[1]].append(str(here / name))
    return sorted(found[".cc"]), sorted(found[".proto"])


@functools.lru_cache(maxsize=None)
def read(path):
    return (ROOT / path).read_text(errors="replace") if (ROOT / path).is_file() else ""


@functools.lru_cache(maxsize=None)
def includes(path):
    """Returns the headers that the file `path` itself includes. Instead of a header of generated messages (.pb.h) it
    returns the .proto file."""
    names = [name for _, name in INCLUDE.findall(read(path))]
    return [name[: -len(".pb.h")] + ".proto" if name.endswith(".pb.h") else name for name in names]


def all_includes(path):
    """Returns two sets: `path` and the files of this repository that it includes, directly or indirectly; and the other
    headers that these files include."""
    ours, outside, remaining = {path}, set(), [path]
    while remaining:
        file = remaining.pop()
        for name in includes(file):
            beside = os.path.normpath(os.path.join(os.path.dirname(file), name))
            found = next((place for place in (name, beside) if read(place)), None)
            if found is None:
                outside.add(name)
            elif found not in ours:
                ours.add(found)
                remaining.append(found)
    return ours, outside


def digest(path, setting):
    text = hashlib.sha256(setting.encode())
    for file in sorted(all_includes(path)[0]):
        text.update(f"\0{file}\0{read(file)}".encode())
    return text.hexdigest()


def needs_libtorch(path):
    return any(name.startswith(LIBTORCH) for name in all_includes(path)[1])


def generate(folder, files, protos):
    """Generates in `folder` the files that a build would generate: the code of messages, and .inc files of embedded
    texts. The .inc files contain only an empty string literal."""
    subprocess.run(
        ["protoc", "--proto_path=.", "--proto_path=/usr/include", f"--cpp_out={folder}", *protos], cwd=ROOT, check=True
    )
    for name in {name for path in files for name in all_includes(path)[1] if name.endswith(".inc")}:
        text = pathlib.Path(folder) / name
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text('""\n')


def not_built(path):
    """Returns the generated headers, except those of messages, that `path` includes and that are not in bazel-bin,
    because no build has made them."""
    folders = {entry.name + "/" for entry in ROOT.iterdir() if entry.is_dir()}
    return [
        name
        for name in all_includes(path)[1]
        if name.endswith(".h") and name.startswith(tuple(folders)) and not (ROOT / "bazel-bin" / name).exists()
    ]


def flags(generated):
    site = next((ROOT / ".venv/lib").glob("python3*/site-packages"))
    wheels = [f"-idirafter{site / name}" for name in WHEELS]
    mpi = [f"-isystem{name}" for name in output_of("mpicc", "--showme:incdirs").split()]
    return [*FLAGS, f"-I{generated}", "-Ibazel-bin", *mpi, *wheels]


def edited():
    return output_of("git", "diff", "--name-only", "HEAD~1").split()


def in_order(files):
    """Returns those of `files` that a run with limited time should check, in order."""
    first = [path for path in edited() if path in files]
    take_long = os.environ.get("LOCKSTEP_TIER") == "all"
    others = [path for path in files if path not in first and (take_long or not needs_libtorch(path))]
    random.Random(output_of("git", "rev-parse", "HEAD")).shuffle(others)
    return first + sorted(others, key=needs_libtorch)


def main(names):
    tidy = str(ROOT / ".venv/bin/clang-tidy")
    if not os.path.exists(tidy):
        sys.exit("no .venv/bin/clang-tidy: ./lockstep installs it")
    files, protos = sources()
    take_all = bool(names) or os.environ.get("TIDY") == "all"
    setting = read(".clang-tidy") + output_of(tidy, "--version") + " ".join(FLAGS)
    KNOWN.mkdir(parents=True, exist_ok=True)
    paths = names or files
    with_analyser = {path: digest(path, setting) for path in paths}
    without_analyser = {path: digest(path, setting + WITHOUT_ANALYSER) for path in paths}
    digests = with_analyser if take_all else without_analyser

    def is_known(path):
        return (KNOWN / with_analyser[path]).exists() or (KNOWN / digests[path]).exists()

    unknown = [path for path in paths if names or not is_known(path)]
    for path in [path for path in unknown if not_built(path)]:
        print(f"{path}: not looked at before {' and '.join(not_built(path))} was built")
        unknown.remove(path)
    chosen = unknown if take_all else in_order(unknown)

    failed, looked_at = [], 0
    with tempfile.TemporaryDirectory() as generated:
        generate(generated, files, protos)
        options = ["--", *flags(generated)]
        command = [tidy, "--quiet"] if take_all else [tidy, "--quiet", WITHOUT_ANALYSER]
        deadline = time.monotonic() + BUDGET_S

        def look(path):
            if not take_all and time.monotonic() > deadline:
                return path, None
            # clang-tidy takes 2 GB for a file with LibTorch's headers; `threads` below follows from that.
            return path, subprocess.run(
                [*command, path, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )

        memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        threads = max(1, min(len(os.sched_getaffinity(0)), int(memory_gb / 2)))
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for path, done in pool.map(look, chosen):
                if done is None:
                    continue
                looked_at += 1
                if done.returncode != 0:
                    failed.append(path)
                    print(done.stdout, flush=True)
                else:
                    (KNOWN / digests[path]).touch()
    # Removes the results of earlier versions of files, which are never needed again.
    if not names:
        for old in {entry.name for entry in KNOWN.iterdir()} - {*with_analyser.values(), *without_analyser.values()}:
            (KNOWN / old).unlink(missing_ok=True)
    print(f"{len(paths) - len(unknown)} of {len(paths)} files were known to be clean, {looked_at} were looked at")
    if failed:
        sys.exit(f"clang-tidy has something to say of {' '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
