"""without_gpu.py CASES FILE: exits with 1 if this machine may have a GPU. If the machine has none, the program exits
with 0, and writes a report to $XML_OUTPUT_FILE in which each case of the test file FILE is skipped.

CASES is the file that conftest.py wrote when the tests were built. Starting pytest and PyTorch only to skip the cases
takes four seconds.
"""

import ctypes
import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

REASON = "needs a GPU; this machine has none"


def may_have_gpu():
    if os.path.exists("/dev/nvidiactl"):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def cases_of(listed, stem, every_tier):
    """Returns the names of a test file's cases in `listed`, the text of the file CASES. If `every_tier` is
    false, the function returns only the cases of the tier `commit`."""
    rows = [line.split("\t") for line in listed.splitlines()]
    return [name for tier, file, name, _ in rows if file == stem and (every_tier or tier == "commit")]


def report(stem, names, reason=REASON):
    """Returns a JUnit report in which the cases `names` of the test `stem` were skipped for `reason`."""
    count = str(len(names))
    suite = ElementTree.Element("testsuite", name=stem, tests=count, skipped=count, failures="0", errors="0")
    for name in names:
        case = ElementTree.SubElement(suite, "testcase", classname=f"tests.{stem}", name=name, time="0")
        ElementTree.SubElement(case, "skipped", type="pytest.skip", message=reason)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return ElementTree.tostring(root, encoding="unicode")


def main(cases, file):
    if may_have_gpu():
        return 1
    stem = pathlib.Path(file).stem
    names = cases_of(pathlib.Path(cases).read_text(), stem, os.environ.get("LOCKSTEP_TIER") == "all")
    if path := os.environ.get("XML_OUTPUT_FILE"):
        pathlib.Path(path).write_text(report(stem, names))
    print(f"{len(names)} skipped: {REASON}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
