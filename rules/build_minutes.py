#!/usr/bin/env python3
"""Prints how long the actions of a build took, from the profile that Bazel writes (--profile=FILE).

rules/build_minutes.py PROFILE            prints the time of each kind of action, and the slowest compilations and links
rules/build_minutes.py --weights PROFILE  prints the content of rules/build_seconds.txt from the profile of a first
                                          build. From that file ./lockstep estimates how long a first build still takes
"""

import collections
import gzip
import json
import re
import sys

SLOWEST = 10
KINDS = ["the program", "kernels", "kept headers", "tests, to compile", "linking", "tests, to run", "the rest"]
LEAST = 0.5  # the shortest time, in seconds, of an action that gets a line in rules/build_seconds.txt


def kind_of(name):
    if name.startswith("Testing "):
        return "tests, to run"
    if name.startswith("Linking "):
        return "linking"
    if name.startswith("CppPrecompile "):
        return "tests, to compile" if "_test_precompiled" in name else "kept headers"
    if not name.startswith("Compiling "):
        return "the rest"
    if name.endswith(".cu"):
        return "kernels"
    is_test = re.search(r"(_test|_bench)\.cc$|/testing/|^Compiling (tests|examples)/", name)
    return "tests, to compile" if is_test else "the program"


def read_actions(path):
    """Returns (seconds, name) of each action; an empty list if the profile cannot be read or is not complete."""
    try:
        events = json.load(gzip.open(path))["traceEvents"]
    except (OSError, EOFError, ValueError):
        return []
    return [(event["dur"] / 1e6, event["name"]) for event in events if event.get("cat") == "action processing"]


def table_of(actions):
    """Returns lines with the core-seconds of each kind of action, and the ten slowest compilations and links."""
    seconds, counts = collections.Counter(), collections.Counter()
    for took, name in actions:
        seconds[kind_of(name)] += took
        counts[kind_of(name)] += 1
    in_all = sum(seconds.values())
    if in_all == 0:
        return []
    lines = ["where the core-seconds went:"]
    for kind in KINDS:
        lines.append(f"{seconds[kind]:8.0f} s {seconds[kind] / in_all:4.0%}  {kind} ({counts[kind]})")
    for what, kinds in (("compilations", KINDS[:4]), ("links", ["linking"])):
        some = sorted(((took, name) for took, name in actions if kind_of(name) in kinds), reverse=True)[:SLOWEST]
        if some:
            lines += ["", f"slowest {what}:"] + [f"{took:8.1f} s  {name.partition(' ')[2]}" for took, name in some]
    return lines


def weight_name(name):
    """Returns the name by which ./lockstep finds the action's time: the path of its source file without .cc."""
    path = name.partition(" ")[2]
    return re.sub(r"\.cc$", "", re.sub(r"^bazel-out/[^/]+/bin/", "", path))


def main():
    if sys.argv[1:2] == ["--weights"]:
        for took, name in sorted(read_actions(sys.argv[2]), key=lambda pair: pair[1]):
            is_programs = kind_of(name) in KINDS[:3] or name == "Linking launch/lockstep"
            if took >= LEAST and is_programs:
                print(f"{took:.1f} {weight_name(name)}")
    else:
        print("\n".join(table_of(read_actions(sys.argv[1]))))


if __name__ == "__main__":
    main()
