#!/usr/bin/env python3
"""Checks that README.md, CONTRIBUTING.md and docs/ are correct: the README is short, each relative link has a target,
each command in these pages exists and has the options that are shown, each file and Bazel target that is named exists,
each test that a header names exists, and docs/configuration.md equals the program's output. To write
docs/configuration.md again, run tests/checks/docs_test.py --write LOCKSTEP """

import functools
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGURATION = ROOT / "docs" / "configuration.md"
MOST_BYTES = 8192  # the maximum size of README.md, in bytes
OF_THE_SCRIPT = {"compile-commands"}  # commands of the script ./lockstep that the program lacks
OF_THE_USER = {"examples/titanic/train.csv", "examples/titanic/test.csv"}  # files that the user downloads from Kaggle
GROUPS = {"bench", "prepare"}  # commands that have subcommands
OPTIONS_OF_THE_SCRIPT = {"--architectures", "--torch"}


def anchor_of(heading):
    """Returns the anchor (the part of a link after #) that GitHub makes for a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def without_code(text):
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def broken_links(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists():
            yield f"{page.name}: {target}: there is no such file"
        elif anchor:
            anchors = {anchor_of(h) for h in re.findall(r"(?m)^#+ (.*)$", without_code(file.read_text()))}
            if anchor not in anchors:
                yield f"{page.name}: {target}: there is no such heading"


def commands_in(page):
    """Returns the commands in a page that a reader would type: lines of code, and text in backticks in tables and
    sentences."""
    text = page.read_text()
    lines = re.findall(r"(?m)^(?:    |)\$ (.*)$", text) + re.findall(r"(?m)^    (\./lockstep .*)$", text)
    return lines + re.findall(r"`((?:\./)?lockstep [^`]*)`", text)


@functools.cache
def options_of(program, *words):
    """Returns the options in the program's help for the command `words`, or None if there is no such command."""
    shown = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown.stdout)) if shown.returncode == 0 else None


def wrong_commands(page, program):
    general = options_of(program)
    for line in commands_in(page):
        if re.match(r"(\./)?lockstep test\b", line):
            continue  # the following words are Bazel's options, or a remark
        for part in re.split(r"&&|\||;| > ", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                yield f"{page.name}: {line}: is no command line"
                continue
            if not words or pathlib.PurePath(words[0]).name != "lockstep":
                continue
            words = [re.sub(r"^-n\d+$", "-n", word) for word in words[1:]]
            plain = [
                word
                for before, word in zip(["", *words], words)
                if not word.startswith("-") and before not in ("-n", "--hosts", "--restarts")
            ]
            if not plain or plain[0] in OF_THE_SCRIPT:
                continue
            named = plain[: 2 if plain[0] in GROUPS and len(plain) > 1 else 1]
            if options_of(program, *named) is None:
                yield f"{page.name}: {line}: there is no such command"
                continue
            allowed = options_of(program, *named) | general | OPTIONS_OF_THE_SCRIPT
            for word in words:
                option = word.split("=")[0]
                if option.startswith("-") and not re.fullmatch(r"-\d+", option) and option not in allowed:
                    yield f"{page.name}: {line}: {' '.join(named)} has no option {option}"


def missing_things(page):
    text = page.read_text()
    for path in set(re.findall(r"(?<![\w/.-])((?:base|ckpt|comm|config|data|examples|launch|models|observe|ops|prepare|python|rules|tests|trainer|use)/[\w/]+\.\w+)", text)):
        if path not in OF_THE_USER and not (ROOT / path).exists() and not (page.parent / path).exists():
            yield f"{page.name}: {path}: there is no such file"
    for package, name in set(re.findall(r"//([\w/]*):(\w+)", text)):
        build = ROOT / package / "BUILD"
        sources = (ROOT / package / f"{name}.cc", ROOT / package / f"{name}.bzl")
        if build.exists() and (f'"{name}"' in build.read_text() or any(s.exists() for s in sources) or name == "tests"):
            continue
        yield f"{page.name}: //{package}:{name}: there is no such target"


def configuration(program):
    template = subprocess.run([program, "config", "--template"], capture_output=True, text=True, check=True).stdout
    return (
        "# Configuration\n"
        "A config is a text file of the fields below, in protobuf's text format. Here each has its default; a config needs "
        "only\nthose that differ. `lockstep config --template` prints this page, `lockstep config FILE` a config with all of its "
        "fields,\nand `--set optimizer.lr=0.01` changes one on the command line. The page is generated from "
        "config/schema/.\n\n"
        f"```\n{template.rstrip()}\n```\n"
    )


def missing_tests():
    """Yields a message for each test that a header names but that does not exist. A name may be the beginning of
    several tests' names. """
    rooms = [entry for entry in ROOT.iterdir() if entry.is_dir() and not entry.name.startswith((".", "bazel-", "runs"))]
    files = [file for room in rooms for file in room.rglob("*") if file.name.endswith((".h", ".cuh", ".py", "_test.cc"))]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    assert len(texts) > 300, f"only {len(texts)} files were found"
    tests = {pathlib.Path(name).stem for name in texts}
    for text in texts.values():
        tests |= set(re.findall(r"\bdef (test_\w+)", text))
        tests |= {".".join(names) for names in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text)}
    for name, text in texts.items():
        if not name.endswith((".h", ".cuh")):
            continue
        for line in re.findall(r"(?m)^ *//.*$", text):
            named = re.findall(r"\btest_\w+", line)
            if "->" in line:
                named += re.findall(r"\b[A-Z]\w+\.[A-Z]\w+\b", line)
            for test in named:
                if not any(known.startswith(test) for known in tests):
                    yield f"{name}: {test}: there is no such test"


def main():
    if sys.argv[1] == "--write":
        CONFIGURATION.write_text(configuration(sys.argv[2]))
        return
    program = str(pathlib.Path(sys.argv[1]).resolve())
    wrong = []
    size = len((ROOT / "README.md").read_bytes())
    if size > MOST_BYTES:
        wrong.append(f"README.md has {size} bytes, more than {MOST_BYTES}")
    for page in PAGES:
        wrong += [*broken_links(page), *wrong_commands(page, program), *missing_things(page)]
    if not CONFIGURATION.exists() or CONFIGURATION.read_text() != configuration(program):
        wrong.append("docs/configuration.md is not what the program prints: tests/checks/docs_test.py --write LOCKSTEP")
    wrong += missing_tests()
    checked = sum(len(commands_in(page)) for page in PAGES)
    assert checked > 30, f"only {checked} commands were found"
    print("\n".join(wrong) or f"{len(PAGES)} pages with {checked} commands are right")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
