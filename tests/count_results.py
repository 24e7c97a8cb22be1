"""count_results.py EVENTS STATUS: prints what `bazel test` found as the line `N passed, N failed, N skipped`.

EVENTS is its build event file (JSON lines), which names each test's report; STATUS is its exit status. A test
program that failed although its report shows no failed case (it crashed, or another rank failed) counts as
one failure, and so does a status that no report explains (a test that did not build).
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def count(report):
    """(passed, failed, skipped) cases of a JUnit report as gtest, pytest and Bazel write them."""
    passed = failed = skipped = 0
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except ElementTree.ParseError:  # cut off by a crash: at least that failed
        return 0, 1, 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(events, status):
    totals = [0, 0, 0]
    for line in open(events) if os.path.exists(events) else []:
        result = json.loads(line).get("testResult")
        if result is None:
            continue
        cases = (0, 0, 0)
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                cases = count(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
        if result["status"] not in ("PASSED", "FLAKY") and cases[1] == 0:
            cases = (cases[0], 1, cases[2])
        totals = [total + n for total, n in zip(totals, cases)]
    if status != 0 and totals[1] == 0:
        totals[1] = 1
    print("{} passed, {} failed, {} skipped".format(*totals))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
