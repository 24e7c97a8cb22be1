#!/usr/bin/env python3
"""Checks that docs/design.md lists the exit statuses of base/error.h, and that the supervisor handles each of them."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    code = (ROOT / "base/error.h").read_text()
    enum = re.search(r"enum class ExitStatus \{(.*?)\};", code, re.S)[1]
    in_code = {int(number) for number in re.findall(r"= (\d+)", enum)}
    table = re.search(r"\| Status \| What it says \|\n(.*?)\n\n", (ROOT / "docs/design.md").read_text(), re.S)[1]
    in_docs = {int(number) for number in re.findall(r"^\s*\| (\d+) \|", table, re.M)}
    listed = re.search(r"kStatuses\[\] = \{(.*?)\}", (ROOT / "launch/job/supervisor.cc").read_text(), re.S)[1]
    in_supervisor = {int(number) for number in re.findall(r"\d+", listed)}
    if not in_code or not in_code == in_docs == in_supervisor:
        sys.exit(f"base/error.h {sorted(in_code)}, docs/design.md {sorted(in_docs)}, supervisor.cc {sorted(in_supervisor)}")


if __name__ == "__main__":
    main()
