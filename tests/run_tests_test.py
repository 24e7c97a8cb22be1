"""Tests how run_tests.py reads test reports, a build's events, Bazel's rules and its own arguments. Also tests the
report that without_gpu.py writes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import run_tests
import without_gpu
from run_tests import Mistake, Notes, Part, Rule

GTEST = """<testsuites tests="3" name="AllTests"><testsuite name="Sampler">
  <testcase name="Covers" status="run" result="completed" time="1.5" classname="Sampler"/>
  <testcase name="OnGpus" status="run" result="skipped" time="0" classname="Sampler"><skipped message="no GPU"/></testcase>
  <testcase name="Repeats" status="run" result="completed" time="0.25" classname="Sampler"><failure message="no"/></testcase>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest"><testcase classname="tests.cli_test" name="test_help" time="0.5"/>
  <testcase classname="tests.cli_test" name="test_gpu[1-2]" time="0"><skipped message="needs a GPU"/></testcase>
  <testcase classname="tests.cli_test" name="test_setup" time="2"><error message="broke"/></testcase></testsuite></testsuites>"""
BAZEL = '<testsuites><testsuite name="a"><testcase name="tests/a" status="run" duration="3" time="3"></testcase></testsuite></testsuites>'


def outcomes(path):
    return [(case.name, case.outcome, case.seconds) for case in run_tests.cases_of(path)]


@pytest.mark.parametrize(
    "text,expected",
    [
        (GTEST, [("Sampler.Covers", "passed", 1.5), ("Sampler.OnGpus", "skipped", 0), ("Sampler.Repeats", "failed", 0.25)]),
        (PYTEST, [("test_help", "passed", 0.5), ("test_gpu[1-2]", "skipped", 0), ("test_setup", "failed", 2)]),
        (BAZEL, [("tests/a", "passed", 3)]),
        (GTEST[:150], [("(its report is damaged)", "failed", 0)]),
    ],
    ids=["gtest", "pytest", "bazel", "cut"],
)
def test_reports(tmp_path, text, expected):
    (tmp_path / "test.xml").write_text(text)
    assert outcomes(tmp_path / "test.xml") == expected


def result(label, status, report=None, shard=1, attempt=1, ms=1000):
    outputs = [{"name": "test.log", "uri": "file:///x"}] + ([{"name": "test.xml", "uri": f"file://{report}"}] if report else [])
    return {
        "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
        "testResult": {"status": status, "testAttemptDurationMillis": str(ms), "testActionOutput": outputs},
    }


def completed(label, **more):
    return {"id": {"targetCompleted": {"label": label, "configuration": {"id": "k8"}}}, **more}


@pytest.fixture
def found(tmp_path):
    """Returns what run_tests.py reads from the events of a Bazel run with many failures."""
    places = {}
    for name, text in (("gtest", GTEST), ("py test", PYTEST), ("bazel", BAZEL)):
        path = tmp_path / f"{name}.xml"
        path.write_text(text)
        places[name] = str(path).replace(" ", "%20")
    events = [
        {"id": {"started": {}}, "started": {}},
        completed("//a:sharded", completed={"success": True}),
        result("//a:sharded", "PASSED", places["bazel"], shard=1, ms=2000),
        result("//a:sharded", "PASSED", places["bazel"], shard=2, ms=500),
        completed("//a:gtest", completed={"success": True}),
        result("//a:gtest", "FAILED", places["gtest"]),
        result("//a:py", "FAILED", places["py test"]),
        completed("//a:crash", completed={"success": True}),
        result("//a:crash", "FAILED", places["bazel"]),
        result("//a:hang", "TIMEOUT"),
        result("//a:again", "FAILED", attempt=1),
        result("//a:again", "PASSED", places["bazel"], attempt=2),
        completed("//a:broken", completed={}),
        completed("//a:wrong", aborted={"reason": "ANALYSIS_FAILURE"}),
        completed("//a:of_another_platform", aborted={"reason": "SKIPPED"}),
        {"id": {"pattern": {"pattern": ["//a:typo"]}}, "aborted": {"description": "no such target"}},
    ]
    lines = [json.dumps(event) for event in events] + ['{"id": {"testRes']
    (tmp_path / "events.json").write_text("\n".join(lines))
    return run_tests.read_events(tmp_path / "events.json")


def test_events(found):
    counts = {label: run_tests.counts_of({label: target}) for label, target in found.items()}
    assert counts == {
        "//a:sharded": (2, 0, 0),
        "//a:gtest": (1, 1, 1),
        "//a:py": (1, 1, 1),
        "//a:crash": (1, 1, 0),
        "//a:hang": (0, 1, 0),
        "//a:again": (1, 0, 0),
        "//a:broken": (0, 1, 0),
        "//a:wrong": (0, 1, 0),
        "//a:typo": (0, 1, 0),
    }
    assert found["//a:sharded"].seconds == 2.5
    assert [label for label, target in found.items() if not target.built] == ["//a:broken", "//a:wrong", "//a:typo"]


def test_the_summary(found):
    lines, counts = run_tests.summary_of(found, status=3)
    assert counts == (6, 7, 2) and lines[-1] == "6 passed, 7 failed, 2 skipped"
    slowest = lines.index("slowest targets:")
    assert lines[slowest + 1] == "     2.5 s  //a:sharded"
    assert lines[lines.index("slowest cases:") + 1] == "     3.0 s  //a:again tests/a"
    assert "  //a:broken (it was not built)" in lines and "  //a:typo (no such target)" in lines
    assert "  //a:hang (timeout)" in lines
    assert "  //a:gtest Sampler.Repeats: no" in lines and "  //a:py test_setup: broke" in lines


def test_a_status_that_nothing_explains(tmp_path):
    assert run_tests.summary_of(run_tests.read_events(tmp_path / "none.json"), 1)[0][-1] == "0 passed, 1 failed, 0 skipped"
    assert run_tests.summary_of({}, 0)[0][-1] == "0 passed, 0 failed, 0 skipped"


LISTED = """Running main() from gmock_main.cc
Sampler.
  Covers
  Repeats
EachChannel/Reducer.
  Sums/Mpi  # GetParam() = 0
  Sums/Nccl  # GetParam() = 1
Typed/0.  # TypeParam = float
  Holds
"""


def test_gtests_list():
    assert run_tests.gtest_cases(LISTED) == [
        "Sampler.Covers",
        "Sampler.Repeats",
        "EachChannel/Reducer.Sums/Mpi",
        "EachChannel/Reducer.Sums/Nccl",
        "Typed/0.Holds",
    ]
    assert run_tests.gtest_cases("error: no such option\n") == []


QUERY = """<query version="2">
<rule class="cc_test" location="x" name="//data:sampler_test"><string name="name" value="sampler_test"/>
  <list name="args"><string value="--gtest_filter=-Slow*"/></list></rule>
<rule class="cc_test" name="//data:by_hand_test"><list name="tags"><string value="manual"/></list></rule>
<rule class="cc_test" name="//tests/fuzz:csv_corpus_test"><list name="tags"><string value="all"/></list>
  <dict name="env"><pair><string value="CORPUS"/><string value="corpus/csv"/></pair>
  <pair><string value="WHY_IN_ALL_TIER"/><string value="a parser changes rarely"/></pair></dict></rule>
<rule class="sh_test" name="//comm:reducer_test_2"><list name="tags"><string value="cpu:2"/></list>
  <list name="srcs"><label value="//comm:mpirun.sh"/></list>
  <list name="args"><string value="2"/><string value="$(location :reducer_test)"/></list></rule>
<rule class="sh_test" name="//tests:cli_test"><list name="srcs"><label value="//tests:pytest.sh"/></list>
  <list name="args"><string value="$(location @wheels//:python.sh)"/><string value="tests/cli_test.py"/></list></rule>
<rule class="sh_test" name="//tests:cli_test_on_gpus"><list name="srcs"><label value="//tests:pytest.sh"/></list>
  <list name="args"><string value="$(location @wheels//:python.sh)"/><string value="tests/cli_test.py"/></list></rule>
<rule class="sh_test" name="//tests:large_test"><list name="tags"><string value="all"/></list>
  <dict name="env"><pair><string value="WHY_IN_ALL_TIER"/><string value="it takes minutes"/></pair></dict>
  <list name="srcs"><label value="//tests:pytest.sh"/></list><list name="args"><string value="tests/large_test.py"/></list></rule>
<rule class="sh_test" name="//tests:outside_workspace_test"><list name="srcs"><label value="//tests:outside.sh"/></list></rule>
</query>"""
CASES = """commit\tcli_test\ttest_help\t
all\tcli_test\ttest_bench[a b]\tother types take the same path
commit\tlarge_test\ttest_gpt2\t
all\tlarge_test\ttest_vit\tit takes an hour
"""


def test_the_list():
    rules = run_tests.rules_of(QUERY)
    programs = {rule.label: run_tests.program_of(rule) for rule in rules if run_tests.program_of(rule)}
    assert programs == {
        "//data:sampler_test": ("//data:sampler_test", ["--gtest_filter=-Slow*"]),
        "//tests/fuzz:csv_corpus_test": ("//tests/fuzz:csv_corpus_test", []),
        "//comm:reducer_test_2": ("//comm:reducer_test", []),
    }
    listed = {"//data:sampler_test": ["A.B"], "//tests/fuzz:csv_corpus_test": [], "//comm:reducer_test": ["R.S", "R.T/1"]}
    by_program = {repr(program): listed[program[0]] for program in programs.values()}
    assert run_tests.lines_of(rules, CASES, by_program, ["faults"]) == [
        "all //tests/fuzz:csv_corpus_test csv_corpus_test: a parser changes rarely",
        "all //tests:cli_test test_bench[a b]: other types take the same path",
        "all //tests:cli_test_on_gpus test_bench[a b]: other types take the same path",
        "all //tests:large_test test_gpt2: it takes minutes",
        "all //tests:large_test test_vit: it takes an hour",
        "commit //comm:reducer_test_2 R.S",
        "commit //comm:reducer_test_2 R.T/1",
        "commit //data:sampler_test A.B",
        "commit //tests:cli_test test_help",
        "commit //tests:cli_test_on_gpus test_help",
        "commit //tests:outside_workspace_test outside_workspace_test",
        "soak tests/run_tests.py faults",
    ]


def test_the_table_of_reasons():
    assert run_tests.reasons_of(run_tests.rules_of(QUERY), CASES) == [
        "//tests/fuzz:csv_corpus_test: 1 of 1",
        "     1  a parser changes rarely",
        "tests/cli_test.py: 1 of 2",
        "     1  other types take the same path",
        "tests/large_test.py: 2 of 2",
        "     1  it takes minutes",
        "     1  it takes an hour",
    ]


def test_a_target_without_a_reason():
    rules = run_tests.rules_of(QUERY.replace("WHY_IN_ALL_TIER", "OTHER", 1))
    with pytest.raises(Mistake) as mistake:
        run_tests.lines_of(rules, CASES, {}, [])
    assert str(mistake.value).startswith("//tests/fuzz:csv_corpus_test: its tag all needs a line that says why")


def collect(folder, text):
    """Returns (the finished pytest process for a test file with this text; the lines of cases that conftest.py wrote,
    or None if it wrote none)."""
    shutil.copy(pathlib.Path(__file__).with_name("conftest.py"), folder)
    (folder / "some_test.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", str(folder)]
    environment = {**os.environ, "CASES_TO": str(folder / "cases.tsv")}
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True)
    return done, (folder / "cases.tsv").read_text() if (folder / "cases.tsv").exists() else None


def test_reasons_of_marks(tmp_path):
    text = """import pytest
@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.all_tier("three are as two")), 2])
@pytest.mark.all_tier("one rank is a part of two", unless=lambda ranks: ranks > 1)
def test_it(ranks): pass
def test_that(): pass
"""
    done, cases = collect(tmp_path, text)
    assert done.returncode == 0, done
    assert cases.splitlines() == [
        "all\tsome_test\ttest_it[1]\tone rank is a part of two",
        "all\tsome_test\ttest_it[3]\tthree are as two",
        "commit\tsome_test\ttest_it[2]\t",
        "commit\tsome_test\ttest_that\t",
    ]
    assert run_tests.python_cases_by_file(cases)["some_test"][2:] == [("test_it[2]", ""), ("test_that", "")]


@pytest.mark.parametrize("mark", ["all_tier", "all_tier()", "all_tier(' ')", "all_tier(unless=lambda x: x == 1)"])
def test_a_mark_without_a_reason(tmp_path, mark):
    text = f"import pytest\n@pytest.mark.parametrize('x', [1])\n@pytest.mark.{mark}\ndef test_it(x): pass\n"
    done, cases = collect(tmp_path, text)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and cases is None, done
    assert "some_test.py::test_it[1]: the mark all_tier needs a line that says why" in done.stderr, done


def test_where_programs_are():
    assert run_tests.path_of_label("//data/feed:sampler_test") == "bazel-bin/data/feed/sampler_test"
    assert run_tests.path_of_label("//data/feed") == "bazel-bin/data/feed/feed"
    elsewhere = Rule("//a:t_2", "sh_test", [], ["2", "$(rootpath //b:t)", "--gtest_filter=X.*"], ["//comm:mpirun.sh"])
    assert run_tests.program_of(elsewhere) == ("//b:t", ["--gtest_filter=X.*"])
    part = Rule("//a:slow_test", "sh_test", ["all"], ["--gtest_filter=Slow.*"], ["//a:a_test"])
    assert run_tests.program_of(part) == ("//a:a_test", ["--gtest_filter=Slow.*"])


PARTS = {"asan-base": None, "faults": None}


@pytest.mark.parametrize(
    "arguments,expected",
    [
        ([], ("commit", [])),
        (["//data/...", "--runs_per_test=3"], ("commit", ["//data/...", "--runs_per_test=3"])),
        (["--all", "//data/..."], ("all", ["//data/..."])),
        (["--soak", "faults"], ("soak", ["faults"])),
        (["--soak", "--list"], ("parts", [])),
        (["--list", "--soak"], ("parts", [])),
        (["--list"], ("list", [])),
        (["--reasons", "--list"], ("reasons", [])),
    ],
)
def test_arguments(arguments, expected):
    assert run_tests.parse(arguments, PARTS) == expected


@pytest.mark.parametrize(
    "arguments,part",
    [
        (["--soak", "fault"], 'no part "fault" of the soak; did you mean "faults"?'),
        (["--soak", "xyz"], "--soak --list prints them"),
        (["--all", "--soak"], "--all and --soak: one at a time"),
        (["--list", "//data/..."], '--list takes no arguments: "//data/..."'),
        (["--reasons"], "--reasons goes with --list"),
        (["--list", "--reasons", "//data/..."], "--reasons goes with --list"),
        (["--alll"], 'no option "--alll"; did you mean "--all"?'),
    ],
)
def test_mistakes(arguments, part):
    with pytest.raises(Mistake) as mistake:
        run_tests.parse(arguments, PARTS)
    assert part in str(mistake.value) and "\n" not in str(mistake.value)


def test_all_targets_unless_some_are_named():
    assert run_tests.with_targets(["--config=asan"]) == ["--config=asan", "//..."]
    assert run_tests.with_targets(["//data/..."]) == ["//data/..."]


def soak(folder, commit, outcomes, needs=""):
    """Runs the soak's parts a, b and c with these outcomes. Returns (the counts, the names of the parts that ran)."""
    parts = {name: Part("it works", "1 min", [], needs=needs if name == "c" else "") for name in "abc"}
    ran = []

    def run(name, part):
        ran.append(name)
        if outcomes[name] is KeyboardInterrupt:
            raise KeyboardInterrupt
        return outcomes[name], "1 passed, 0 failed, 0 skipped"

    return run_tests.run_soak(list(parts), parts, Notes(folder, commit), run, say=lambda text: None), ran


def test_soak_goes_on_where_it_was(tmp_path):
    folder = tmp_path / "soak"
    assert soak(folder, "c0ffee", {"a": True, "b": False, "c": True}) == ((2, 1, 0), ["a", "b", "c"])
    assert soak(folder, "c0ffee", {"b": KeyboardInterrupt}) == ((1, 0, 0), ["b"])
    assert soak(folder, "c0ffee", {"b": True}) == ((3, 0, 0), ["b"])
    assert soak(folder, "c0ffee", {}) == ((3, 0, 0), [])
    # Results of one commit do not count for another, and results for uncommitted changes are not kept.
    assert soak(folder, "decade", dict.fromkeys("abc", True), needs="/no/such/program") == ((2, 0, 1), ["a", "b"])
    for _ in range(2):
        assert soak(tmp_path / "changed", None, dict.fromkeys("abc", True)) == ((3, 0, 0), ["a", "b", "c"])


def test_parts_of_the_soak_have_one_line_each(monkeypatch):
    monkeypatch.setattr(run_tests, "fuzz_targets", lambda: ["csv"])
    parts = run_tests.soak_parts()
    assert {"asan-comm", "tsan-ckpt", "fuzz-csv", "faults", "kills-8"} <= set(parts)
    assert all("\n" not in line for line in run_tests.list_parts(parts))


def test_skipped_without_a_gpu(tmp_path):
    assert without_gpu.cases_of(CASES, "cli_test", every_tier=False) == ["test_help"]
    names = without_gpu.cases_of(CASES, "cli_test", every_tier=True) + ['test_<&>["a"]']
    path = tmp_path / "test.xml"
    path.write_text(without_gpu.report("cli_test", names))
    assert outcomes(path) == [(name, "skipped", 0) for name in names]
    reasons = {skipped.get("message") for skipped in ElementTree.parse(path).iter("skipped")}
    conftest = pathlib.Path(__file__).with_name("conftest.py").read_text()
    assert reasons == {without_gpu.REASON} and f'REASON = "{without_gpu.REASON}"' in conftest
