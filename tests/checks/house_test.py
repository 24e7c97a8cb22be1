#!/usr/bin/env python3
"""Checks the structure of the sources: no top-level folder holds more than a fifth of the product's lines, no files
include each other in a cycle, no room (a folder with a BUILD file) includes a file of a room that rules/rooms.bzl lists
after it, no two types of one namespace have the same name, and no Python code of the product splits a text with
str.splitlines(), which also ends lines at characters that a line of JSON or a cell may contain, such as U+2028. Prints
the number of lines of each top-level folder and of each folder in it.

If two types had the same name, an inline function for this type, such as a member of std::vector, would be defined
twice, and the linker would keep only one of the definitions. Objects of the one type would then be handled as if they
were of the other type.

The product consists of the sources that are built into the program and the Python package. It does not include tests,
benchmarks, folders named testing, examples and build files. A unit consists of the files with one name in one folder,
such as foo.h and foo.cc. Bazel itself refuses a dependency between rooms that rooms.bzl does not list; this test also
finds cycles within a room.
"""

import collections
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 0.2  # the greatest fraction of the product's lines that a top-level folder may hold
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".c", ".proto", ".inc", ".js", ".css", ".html", ".py"}
OUTSIDE = {"tests", "examples", "docs", "findings", "third_party", "rules", "runs"}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)


def product_files():
    for folder, folders, names in os.walk(ROOT):
        at = pathlib.Path(folder).relative_to(ROOT)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "bazel-", "__")) and name != "testing" and (at.parts or name not in OUTSIDE)
        ]
        for name in names:
            path = at / name
            if at.parts and path.suffix in SUFFIXES and not re.search(r"_(test|bench)\.\w+$", name):
                yield path


def unit_of(path):
    # An .inc file is a list, such as metrics.inc, that several units include. It is therefore a unit of its own.
    return str(path if path.suffix == ".inc" else path.with_suffix(""))


def circles(arrows):
    """Returns the strongly connected components of `arrows` with more than one unit (Tarjan's algorithm, without
    recursion)."""
    number, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in sorted(arrows):
        if root in number:
            continue
        work = [(root, iter(sorted(arrows[root])))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            unit, left = work[-1]
            for other in left:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(arrows.get(other, ())))))
                    break
                if other in on_stack:
                    low[unit] = min(low[unit], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == number[unit]:
                    group = []
                    while not group or group[-1] != unit:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


TYPE = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)\b(?!::|<)[^;{]*\{", re.M)


def types_of(text):
    """Yields namespace::name of each type that is defined at the top level of a named namespace."""
    nameless = [(found.start(), text.find("\n}  // namespace\n", found.start())) for found in re.finditer(r"^namespace \{", text, re.M)]
    for found in TYPE.finditer(text):
        if any(begin < found.start() < end for begin, end in nameless):
            continue
        namespaces = re.findall(r"^namespace ([\w:]+) \{", text[: found.start()], re.M)
        yield "::".join([*namespaces[-1:], found[1]])


def main():
    files = sorted(product_files())
    assert len(files) > 500, f"found {len(files)} files in {ROOT}: where are they?"
    texts = {path: (ROOT / path).read_text() for path in files}
    lines = collections.Counter()
    rooms = collections.Counter()
    for path, text in texts.items():
        lines[path.parts[0]] += text.count("\n")
        rooms[str(path.parent)] += text.count("\n")
    in_all = sum(lines.values())
    for name, count in lines.most_common():
        print(f"{count:7} {count / in_all:6.1%}  {name}")
        for room, of_room in sorted(rooms.items()):
            if room.startswith(name + "/"):
                print(f"{'':16}{of_room:7}  {room}")

    order = {}
    for name in re.findall(r'^    "([\w/]+)": \[', (ROOT / "rules/rooms.bzl").read_text(), re.M):
        order[name] = len(order)
    known = {str(path) for path in files}
    arrows = collections.defaultdict(set)
    up = []
    for path, text in texts.items():
        for included in INCLUDE.findall(text):
            target = pathlib.Path(included)
            if included not in known or unit_of(target) == unit_of(path):
                continue
            arrows[unit_of(path)].add(unit_of(target))
            here, there = str(path.parent), str(target.parent)
            if here != there and order.get(there, len(order)) >= order.get(here, -1):
                up.append(f"{path} includes {included}")
    places = collections.defaultdict(list)
    for path, text in texts.items():
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            for name in types_of(text):
                places[name].append(path)
    twice = {name: some for name, some in places.items() if len(some) > 1}
    splitting = [
        path
        for path, text in texts.items()
        if path.suffix == ".py" and re.search(r"^[^#\n]*\.splitlines\(", text, re.M)
    ]
    found = circles(arrows)
    name, count = lines.most_common(1)[0]
    print(f"{in_all} lines, at most {count / in_all:.1%} in one top-level folder ({name})")
    print(f"{len(found)} circles, {len(up)} arrows up, {len(twice)} types of {len(places)} defined twice")
    for group in found:
        print("a circle: " + ", ".join(group) + ": move what both need into a file that both include")
    for arrow in up:
        print(f"an arrow up: {arrow}: move the code to the lower room, or the order in rules/rooms.bzl")
    for name, some in sorted(twice.items()):
        print(f"{name} is defined in {' and '.join(map(str, some))}: give one of the types another name")
    for path in splitting:
        print(f'{path} calls splitlines(): split at "\\n" alone')
    if count > MOST * in_all:
        print(f"{name} holds more than a fifth: make a room of its own of a part")
    return 1 if found or up or twice or splitting or count > MOST * in_all else 0


if __name__ == "__main__":
    sys.exit(main())
