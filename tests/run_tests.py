"""./lockstep test: runs the tests of a tier, or lists the tests.

  ./lockstep test [BAZEL ARGUMENT ...]          the cases that run on every commit (tier commit)
  ./lockstep test --all [BAZEL ARGUMENT ...]    every case that ends in minutes (tiers commit and all)
  ./lockstep test --soak [PART ...]             the tests that take hours, part by part; --soak --list prints the parts
  ./lockstep test --torch 2.15 [ARGUMENT ...]   a tier, or a part, with another torch of third_party/torch
  ./lockstep test --list                        every case: its tier, target and name, and why it waits for --all
  ./lockstep test --list --reasons              for each file: how many of its cases wait for --all, and why

A target belongs to the tier `all` if it has the tag `all`. A pytest case also belongs to that tier if the case has the
marker all_tier (tests/conftest.py). Each such target or case needs a reason: that of a target stands in the variable
WHY_IN_ALL_TIER of its env, and that of a case is the marker's first argument. The last line of a run is `N passed, N
failed, N skipped`, which counts cases, or parts of the soak. The exit status is 0 if nothing failed. Three things count
as one failed case each: a test program that failed although its report has no failed case (it crashed, or another rank
failed), a target that was not built, and an exit status of Bazel that no failed case explains.
"""

import collections
import concurrent.futures
import dataclasses
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rules"))
import build_minutes  # noqa: E402

STATE = pathlib.Path(".lockstep")
# ./lockstep sets the variable for another torch than that of .venv.
BAZEL = ["bazel", *(f"--bazelrc={file}" for file in [os.environ.get("LOCKSTEP_BAZELRC")] if file)]
COMMIT = ["--test_tag_filters=-all"]
ALL = ["--test_env=LOCKSTEP_TIER=all", "--//rules:cuda_architectures=all"]
NO_TESTS = 4  # Bazel's exit status if it found no tests
SLOWEST = 10
WHY = 300  # the maximum length of the reason why a case failed, in characters
REASON = "WHY_IN_ALL_TIER"  # a variable of a target's env, which all_tier_env() of pytest_test.bzl sets


class Mistake(Exception):
    pass


# ---- What Bazel found ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Case:
    name: str
    outcome: str  # passed, failed or skipped
    seconds: float = 0
    why: str = ""  # the reason, if the case failed


@dataclasses.dataclass
class Target:
    """A test target that ran. The cases and the seconds of all its shards are added up."""

    cases: list = dataclasses.field(default_factory=list)
    seconds: float = 0
    built: bool = True


def cases_of(report):
    """Returns the cases of a JUnit report that gtest, pytest or Bazel wrote."""
    try:
        elements = list(ElementTree.parse(report).iter("testcase"))
    except (ElementTree.ParseError, OSError):  # a crash cut the report off, which counts as a failed case
        return [Case("(its report is damaged)", "failed")]
    cases = []
    for element in elements:
        failure = next((found for kind in ("failure", "error") for found in element.findall(kind)), None)
        outcome = "passed"
        if failure is not None:
            outcome = "failed"
        elif element.find("skipped") is not None or element.get("result") == "skipped":
            outcome = "skipped"
        elif element.get("status") == "notrun":
            outcome = "skipped"
        # gtest writes a case's suite as its class name, and pytest writes the file.
        suite = element.get("classname") or ""
        name = element.get("name") or ""
        name = name if not suite or suite.startswith("tests.") else f"{suite}.{name}"
        # gtest's message has two lines, with the place and the failure. They become one line.
        why = "" if failure is None else " ".join((failure.get("message") or "").split())
        cases.append(Case(name, outcome, float(element.get("time") or 0), why))
    return cases


def path_of(uri):
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def read_events(path):
    """Returns the targets of a file of Bazel's build events (JSON lines), by label."""
    targets = collections.defaultdict(Target)
    results, unbuilt = {}, {}
    for line in open(path) if os.path.exists(path) else []:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # the incomplete last line, if Bazel was killed
            continue
        for kind, identity in event.get("id", {}).items():
            if kind == "testResult" and "testResult" in event:
                # If there were several attempts, the last one counts.
                shard = identity["label"], identity.get("run"), identity.get("shard")
                results[shard] = event["testResult"]
            elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
                if event.get("aborted", {}).get("reason") != "SKIPPED":  # SKIPPED: not for this platform
                    unbuilt[identity["label"]] = "it was not built"
            elif kind == "pattern" and "aborted" in event:
                unbuilt[" ".join(identity["pattern"])] = event["aborted"].get("description", "it stands for nothing")
    for (label, *_), result in results.items():
        cases = []
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                cases = cases_of(path_of(output["uri"]))
        if result["status"] not in ("PASSED", "FLAKY") and not any(case.outcome == "failed" for case in cases):
            cases.append(Case(f"({result['status'].lower()})", "failed"))
        targets[label].cases += cases
        targets[label].seconds += int(result.get("testAttemptDurationMillis") or 0) / 1000
    for label, why in unbuilt.items():
        if label not in targets:
            targets[label] = Target([Case(f"({why})", "failed")], built=False)
    return dict(targets)


def counts_of(targets):
    """Returns the numbers of cases: (passed, failed, skipped)."""
    outcomes = collections.Counter(case.outcome for target in targets.values() for case in target.cases)
    return outcomes["passed"], outcomes["failed"], outcomes["skipped"]


def line_of(counts):
    return "{} passed, {} failed, {} skipped".format(*counts)


def summary_of(targets, status):
    """Returns the lines of the summary of a run, and the counts in its last line. `status` is the exit status of
    Bazel."""
    passed, failed, skipped = counts_of(targets)
    times = [(target.seconds, label) for label, target in sorted(targets.items()) if target.built]
    cases = [(case, label) for label, target in sorted(targets.items()) for case in target.cases]
    times_of_cases = [(case.seconds, f"{label} {case.name}") for case, label in cases if targets[label].built]
    lines = []
    for what, some in (("targets", times), ("cases", times_of_cases)):
        if some:
            slowest = sorted(some, key=lambda pair: -pair[0])[:SLOWEST]
            lines += ["", f"slowest {what}:"] + [f"{seconds:8.1f} s  {name}" for seconds, name in slowest]
    if failed:
        lines += ["", "failed:"]
        for case, label in cases:
            if case.outcome == "failed":
                lines.append(f"  {label} {case.name}" + (f": {case.why[:WHY]}" if case.why else ""))
    if status != 0 and failed == 0:
        lines += ["", f"bazel ended with status {status}, which no test explains"]
        failed = 1
    return lines + ["", line_of((passed, failed, skipped))], (passed, failed, skipped)


# ---- Running it ------------------------------------------------------------------------------------------------------


def wait_for(process):
    """Waits until `process` has ended, and returns its exit status. If the user interrupts with the keyboard, `process`
    gets the signal, too, and KeyboardInterrupt is raised only after `process` has ended."""
    interrupt = None
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt as again:
            interrupt = again
    if interrupt:
        raise interrupt
    return process.returncode


def bazel_test(arguments, events):
    """Runs `bazel test`, and returns its exit status and the targets that ran. Writes Bazel's events to the file
    `events`, and Bazel's profiles beside this file.

    Everything is built before the first test runs. Then three tests run at the same time on two cores, because most
    tests spend a part of their time waiting."""
    events.unlink(missing_ok=True)
    build, test = profiles_beside(events)
    options = ["--keep_going", "--nocache_test_results", "--build_tests_only", *arguments]
    wait_for(subprocess.Popen([*BAZEL, "build", f"--profile={build}", *options]))
    at_once = len(os.sched_getaffinity(0)) * 3 // 2
    options += [f"--jobs={at_once}", f"--local_cpu_resources={at_once}"]
    files = [f"--build_event_json_file={events}", f"--profile={test}"]
    status = wait_for(subprocess.Popen([*BAZEL, "test", *files, *options]))
    return status, read_events(events)


def profiles_beside(events):
    """Returns the paths of two profiles of Bazel: that of the build, and that of the tests."""
    return [events.resolve().with_suffix(f".{what}.profile.gz") for what in ("build", "test")]


def with_targets(arguments):
    """Returns the arguments. If they name no target, adds `//...`, which means all targets."""
    return arguments if any(not argument.startswith("-") for argument in arguments) else [*arguments, "//..."]


def run_tier(tier, arguments):
    arguments = [*(ALL if tier == "all" else COMMIT), *with_targets(arguments)]
    status, targets = bazel_test(arguments, STATE / "tests.json")
    if status == NO_TESTS and not targets:
        print(f"no tests of tier {tier} there" + ("" if tier == "all" else ": --all runs the others, too"))
        print(line_of((0, 0, 0)))
        return 2
    profiles = [build_minutes.read_actions(profile) for profile in profiles_beside(STATE / "tests.json")]
    minutes = build_minutes.table_of([action for actions in profiles for action in actions])
    lines, counts = summary_of(targets, status)
    print("\n".join(["", *minutes, *lines]))
    return 1 if counts[1] else 0


# ---- Soak ------------------------------------------------------------------------------------------------------------

ROOMS = ["base", "ckpt", "comm", "data"]
FUZZ_MINUTES = 30
KILL_PARTS = 8
SIGNAL_PARTS = 8
OF_A_TORCH = ["parity", "resume", "export", "imported", "python"]  # the tests that may depend on torch's version


@dataclasses.dataclass
class Part:
    shows: str
    about: str  # the time that the part takes on two cores, such as "20 min"
    command: list  # the arguments of `bazel test` if `bazel` is true, otherwise the words of a command
    bazel: bool = True
    needs: str = ""  # the name of a program without which the part is skipped


def fuzz_targets():
    build = pathlib.Path("tests/fuzz/BUILD").read_text()
    return re.findall(r'fuzz_target\(\s*name = "(\w+)"', build)


def sweep(target, *variables, cases=""):
    """Returns arguments of `bazel test` that run a target's cases of all tiers with the environment `variables`. If
    `cases` is given, it is pytest's -k expression, which selects cases by their names."""
    words = ["--test_timeout=36000", "--test_env=LOCKSTEP_TIER=all", *(f"--test_env={v}" for v in variables)]
    return [*words, *(["--test_arg=-k", f"--test_arg={cases}"] if cases else []), f"//tests:{target}"]


def soak_parts():
    """Returns all parts of the soak by name. Each part takes 15 to 90 min. If a part is interrupted, it must run again
    from its beginning, except for `operations` and `model-files`, which go on."""
    parts = {}
    for room in ROOMS:
        for config, shows in (("asan", "reads or writes where it must not"), ("tsan", "has a data race")):
            command = [f"--config={config}", f"//{room}/..."]
            parts[f"{config}-{room}"] = Part(f"no test of //{room} {shows}", "20 min", command)
    for name in fuzz_targets():
        parts[f"fuzz-{name}"] = Part(
            f"libFuzzer finds no bytes that break {name}",
            f"{FUZZ_MINUTES} min",
            ["tests/fuzz/run.sh", name, str(60 * FUZZ_MINUTES)],
            bazel=False,
            needs="clang",
        )
    parts["operations"] = Part(
        "no operation that a .lsm file may call leaves its tensors, in a million calls with random arguments",
        "40 min",
        ["tests/fuzz/resume.sh", "operation_calls"],
        bazel=False,
    )
    parts["model-files"] = Part(
        "no mutated .lsm file makes the program leave its memory or end",
        f"{FUZZ_MINUTES} min",
        ["tests/fuzz/resume.sh", "model_files", "--seconds", str(60 * FUZZ_MINUTES)],
        bazel=False,
    )
    parts["tidy"] = Part(
        "clang-tidy, its static analyser included, finds nothing in any file",
        "90 min",
        ["--test_timeout=36000", "--test_env=TIDY=all", "//tests/checks:tidy_test"],
    )
    parts["breadth"] = Part(
        "95 % of timm's and Hugging Face's models export, train a step and match eager",
        "35 min",
        [".venv/bin/python", "tests/bench/export_breadth.py", "./lockstep", "--jobs", "2"],
        bazel=False,
    )
    parts["faults"] = Part(
        "every fault of a rank is told twenty times in a row",
        "35 min",
        sweep("fault_test", "REPEAT=20"),
    )
    parts["endings"] = Part(
        "a job goes on from every ending, at twenty random moments each, under both series of Open MPI",
        "75 min",
        sweep("endings_test", "ENDINGS=20"),
    )
    parts["slurm"] = Part(
        "a Slurm job goes on from every ending, at five random moments each, and on either node",
        "30 min",
        sweep("slurm_test", "ENDINGS=5"),
    )
    parts["resume"] = Part(
        "a run goes on from 50 of its checkpoints with the same bits",
        "30 min",
        sweep("resume_test", "RESUME_SAMPLES=50", cases="every_ or several_ranks or augmented"),
    )
    for ranks, name in (("None", "1"), ("2", "2")):
        parts[f"long-training-{name}"] = Part(
            f"a training of an hour holds at most 1 % more memory, and no more files and threads, in the end ({name} ranks)",
            "62 min",
            sweep("long_training_test", "TRAIN_S=3600", "MORE_MEMORY=0.01", cases=ranks),
        )
    parts["cycles"] = Part(
        "200 jobs, started and stopped, leave no process and no file behind",
        "15 min",
        sweep("cycles_test", "CYCLES=200"),
    )
    for torch in ("2.10", "2.15"):
        parts[f"torch-{torch}"] = Part(
            f"training, resuming, exports and the Python package hold what they promise with torch {torch}",
            "20 min",
            ["./lockstep", "test", "--torch", torch, *(f"//tests:{name}_test" for name in OF_A_TORCH)],
            bazel=False,
        )
    parts["debian-13"] = Part(
        "a clone builds, trains, stops and goes on in Debian 13, under Open MPI 5, at several moments each",
        "90 min",
        [".venv/bin/python", "tests/debian_13.py", "--test_env=LOCKSTEP_TIER=all", *(f"//tests:{t}_test" for t in ("endings", "signals"))],
        bazel=False,
        needs="debootstrap",
    )
    for number in range(SIGNAL_PARTS):
        parts[f"signals-{number + 1}"] = Part(
            f"a signal at any moment does what docs/design.md says ({number + 1} of {SIGNAL_PARTS})",
            "20 min",
            sweep("signals_test", f"PART={number}/{SIGNAL_PARTS}"),
        )
    for number in range(KILL_PARTS):
        parts[f"kills-{number + 1}"] = Part(
            f"a run that is killed at any call that changes the file system goes on ({number + 1} of {KILL_PARTS})",
            "20 min",
            sweep("checkpoint_fault_test", "SWEEP=all", f"PART={number}/{KILL_PARTS}", cases="killed"),
        )
    return parts


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def state_of_tree():
    """Returns the current commit, or None if files differ from this commit. Files that fuzzing adds to its corpus are
    ignored."""
    changes = git("status", "--porcelain", "--", ".", ":!tests/fuzz/corpus")
    return git("rev-parse", "HEAD") if changes == "" else None


class Notes:
    """Records which parts of the soak have passed. Each of these parts has a file, which contains the commit. The file
    is written when the part has passed, so a part that was killed runs again."""

    def __init__(self, folder, commit):
        self.folder, self.commit = pathlib.Path(folder), commit

    def has(self, name):
        path = self.folder / name
        return self.commit is not None and path.exists() and path.read_text().split()[:1] == [self.commit]

    def add(self, name, text):
        if self.commit is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f".{name}"
        new.write_text(f"{self.commit} {text}\n")
        new.rename(self.folder / name)


def run_part(name, part):
    """Runs a part. Returns whether it passed, and a text with its counts or its exit status."""
    if not part.bazel:
        status = wait_for(subprocess.Popen(part.command))
        return status == 0, f"status {status}"
    status, targets = bazel_test(part.command, STATE / f"soak-{name}.json")
    lines, counts = summary_of(targets, status)
    if counts[1]:
        print("\n".join(lines[:-1]))
    return counts[1] == 0, line_of(counts)


def run_soak(chosen, parts, notes, run=run_part, say=print):
    """Runs the chosen parts one after the other. Stops early if the user interrupts with the keyboard. Returns the
    numbers of parts: (passed, failed, skipped). A part that passed before for this commit counts as passed."""
    outcomes = collections.Counter()
    for name in chosen:
        part = parts[name]
        if notes.has(name):
            say(f"{name}: passed before, for this commit")
            outcomes["passed"] += 1
        elif part.needs and shutil.which(part.needs) is None:
            say(f"{name}: skipped: needs {part.needs}")
            outcomes["skipped"] += 1
        else:
            say(f"{name}: {part.shows}; about {part.about}")
            begin = time.monotonic()
            try:
                passed, text = run(name, part)
            except KeyboardInterrupt:
                say(f"{name}: interrupted; ./lockstep test --soak goes on with it")
                break
            say(f"{name}: {'passed' if passed else 'FAILED'} after {(time.monotonic() - begin) / 60:.1f} min: {text}")
            outcomes["passed" if passed else "failed"] += 1
            if passed:
                notes.add(name, text)
    return outcomes["passed"], outcomes["failed"], outcomes["skipped"]


def list_parts(parts):
    return [f"{name:24} {'about ' + part.about:14} {part.shows}" for name, part in parts.items()]


# ---- Listing ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Rule:
    """A test target, with the attributes that `bazel query --output=xml` prints."""

    label: str
    kind: str
    tags: list
    args: list
    srcs: list
    env: dict = dataclasses.field(default_factory=dict)

    @property
    def package(self):
        return self.label[2:].partition(":")[0]

    @property
    def tier(self):
        return "all" if "all" in self.tags else "commit"

    @property
    def reason(self):
        """Returns why all cases of the target wait for --all, or an empty text if they do not all wait. Raises Mistake
        if the target has the tag `all` but no reason."""
        if self.tier == "all" and not self.env.get(REASON):
            raise Mistake(f"{self.label}: its tag all needs a line that says why it can wait: env {REASON}")
        return self.env[REASON] if self.tier == "all" else ""


def rules_of(xml):
    """Returns the test targets in the output of `bazel query`, without those with the tag `manual`, which `//...` does
    not include."""
    rules = []
    for element in ElementTree.fromstring(xml).iter("rule"):
        lists = {child.get("name"): [item.get("value") for item in child] for child in element.findall("list")}
        fields = [lists.get(key, []) for key in ("tags", "args", "srcs")]
        pairs = [[item.get("value") for item in pair] for pair in element.findall("dict[@name='env']/pair")]
        rule = Rule(element.get("name"), element.get("class"), *fields, env=dict(pairs))
        if "manual" not in rule.tags:
            rules.append(rule)
    return rules


def gtest_cases(text):
    """Returns the names of the cases in `text`, the output of `--gtest_list_tests`."""
    cases, suite = [], ""
    for line in text.splitlines():
        name = line.partition("#")[0].rstrip()
        if line.startswith("  ") and suite:
            cases.append(suite + name.strip())
        else:
            suite = name if re.fullmatch(r"\S+\.", name) else ""
    return cases


def python_file_of(rule):
    """Returns the name, without .py, of the file that a pytest_test runs; None for other rules."""
    if any(src.endswith(":pytest.sh") for src in rule.srcs):
        for argument in rule.args:
            if argument.endswith("_test.py"):
                return pathlib.PurePath(argument).stem
    return None


def program_of(rule):
    """Returns (label, arguments) of the program that the test runs: the target itself, or the program that several
    ranks run. Returns None for other tests, such as pytest files."""
    if rule.kind == "cc_test":
        return rule.label, rule.args
    if len(rule.srcs) == 1 and "." not in rule.srcs[0].rpartition(":")[2]:  # the test starts only this binary
        return rule.srcs[0], rule.args
    if any(src.endswith(":mpirun.sh") for src in rule.srcs):
        for number, argument in enumerate(rule.args):
            if found := re.fullmatch(r"\$\((?:location|locations|rootpath|execpath) (.+)\)", argument):
                label = found[1] if found[1].startswith("//") else f"//{rule.package}:{found[1].removeprefix(':')}"
                return label, rule.args[number + 1 :]
    return None


def path_of_label(label):
    package, _, name = label[2:].partition(":")
    return f"bazel-bin/{package}/{name or package.rpartition('/')[2]}"


def ask_gtest(program):
    """Returns the names of a program's cases; an empty list if it is no gtest program."""
    label, arguments = program
    # A program that uses MPI lists its cases as a single rank, without mpirun.
    alone = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_plm_rsh_agent": "", "OMPI_MCA_btl": "self"}
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    filters = [argument for argument in arguments if argument.startswith("--gtest_")]
    try:
        done = subprocess.run(
            [path_of_label(label), "--gtest_list_tests", *filters],
            env={**os.environ, **alone, **as_root},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"./lockstep test --list: {label}: {error}")
    return gtest_cases(done.stdout)


def python_cases_by_file(listed):
    """Returns, by file, pairs (case, reason why it waits for --all) from the lines that conftest.py writes. The reason
    is empty if the case runs on every commit."""
    by_file = collections.defaultdict(list)
    for line in listed.splitlines():
        _, stem, name, reason = line.split("\t")
        by_file[stem].append((name, reason))
    return by_file


def cases_of_rule(rule, by_file, cases_by_program):
    """Returns pairs (case, reason why it waits for --all). The reason is empty if the case runs on every commit."""
    stem, program = python_file_of(rule), program_of(rule)
    cases = []
    if stem is not None:
        cases = by_file.get(stem, [])
    elif program is not None:
        cases = [(name, "") for name in cases_by_program.get(repr(program), [])]
    # A test whose cases cannot be listed counts as one case.
    return [(name, reason or rule.reason) for name, reason in cases or [(rule.label.rpartition(":")[2], "")]]


def lines_of(rules, python_cases, cases_by_program, parts):
    """Returns one line for each case, sorted: `all TARGET CASE: REASON` for the tier all, otherwise `TIER TARGET
    CASE`."""
    by_file = python_cases_by_file(python_cases)
    lines = []
    for rule in rules:
        for name, reason in cases_of_rule(rule, by_file, cases_by_program):
            lines.append(f"all {rule.label} {name}: {reason}" if reason else f"commit {rule.label} {name}")
    lines += [f"soak tests/run_tests.py {name}" for name in parts]
    return sorted(lines)


def reasons_of(rules, python_cases):
    """Returns the lines of a table of the cases that wait for --all. For each pytest file, and for each other
    target with such cases, a line shows how many of its cases wait and how many cases it has. Below this line, each
    reason has a line with the number of cases that wait for this reason."""
    by_file, counted = python_cases_by_file(python_cases), {}
    for rule in rules:
        stem = python_file_of(rule)
        name = f"tests/{stem}.py" if stem in by_file else rule.label
        counted[name] = [reason for _, reason in cases_of_rule(rule, by_file, {})]
    lines = []
    for name, reasons in sorted(counted.items()):
        waiting = collections.Counter(filter(None, reasons))
        if waiting:
            lines.append(f"{name}: {waiting.total()} of {len(reasons)}")
            lines += [f"{count:6}  {reason}" for reason, count in waiting.most_common()]
    return lines


def run_list(only_reasons):
    def bazel(*words, **options):
        done = subprocess.run(["bazel", *words], stdout=options.get("stdout", sys.stderr), text=True)
        if done.returncode:
            sys.exit(f"./lockstep test --list: bazel {words[0]} failed")
        return done.stdout

    bazel("build", *(["//tests:cases"] if only_reasons else ["--build_tests_only", "//..."]))
    rules = rules_of(bazel("query", "--output=xml", "tests(//...)", stdout=subprocess.PIPE))
    python_cases = pathlib.Path("bazel-bin/tests/cases.tsv").read_text()
    if only_reasons:
        print("\n".join(reasons_of(rules, python_cases)))
        return 0
    programs = {repr(program): program for program in map(program_of, rules) if program}
    # Only two programs run at the same time, because each takes time and memory to load LibTorch.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        cases = dict(zip(programs, pool.map(ask_gtest, programs.values())))
    print("\n".join(lines_of(rules, python_cases, cases, soak_parts())))
    return 0


# ---- The command -----------------------------------------------------------------------------------------------------


def parse(arguments, parts):
    """Returns (mode, the other arguments). The mode is commit, all, soak, parts, list or reasons. Raises Mistake if the
    arguments are wrong."""
    own = ["--all", "--soak", "--list", "--reasons"]
    asked = [argument for argument in own if argument in arguments]
    rest = [argument for argument in arguments if argument not in own]
    for argument in rest:
        close = difflib.get_close_matches(argument, own, cutoff=0.8)
        if argument.startswith("--") and close:
            raise Mistake(f'no option "{argument}"; did you mean "{close[0]}"?')
    if asked == ["--soak", "--list"]:
        if rest:
            raise Mistake(f'--soak --list takes no arguments: "{rest[0]}"')
        return "parts", []
    if "--reasons" in asked and (asked != ["--list", "--reasons"] or rest):
        raise Mistake("--reasons goes with --list, and with nothing else: ./lockstep test --list --reasons")
    if "--reasons" in asked:
        return "reasons", []
    if len(asked) > 1:
        raise Mistake(f"{' and '.join(asked)}: one at a time")
    mode = asked[0][2:] if asked else "commit"
    if mode == "list" and rest:
        raise Mistake(f'--list takes no arguments: "{rest[0]}"')
    if mode == "soak":
        for name in rest:
            if name not in parts:
                close = difflib.get_close_matches(name, parts, 1)
                hint = f'; did you mean "{close[0]}"?' if close else "; --soak --list prints them"
                raise Mistake(f'no part "{name}" of the soak{hint}')
    return mode, rest


def main(arguments):
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    if "--help" in arguments or "-h" in arguments:
        print(__doc__.strip())
        return 0
    parts = soak_parts()
    try:
        mode, rest = parse(arguments, parts)
    except Mistake as mistake:
        print(f"lockstep: error: {mistake}", file=sys.stderr)
        return 2
    STATE.mkdir(exist_ok=True)
    if mode in ("list", "reasons"):
        try:
            return run_list(only_reasons=mode == "reasons")
        except Mistake as mistake:
            print(f"lockstep: error: {mistake}", file=sys.stderr)
            return 2
    if mode == "parts":
        print("\n".join(list_parts(parts)))
        return 0
    if mode == "soak":
        notes = Notes(STATE / "soak", state_of_tree())
        if notes.commit is None:
            print("the tree differs from its commit: what passes is not noted")
        chosen = rest or list(parts)
        counts = run_soak(chosen, parts, notes)
        print(line_of(counts))
        return 1 if counts[1] else 0 if sum(counts) == len(chosen) else 130
    try:
        return run_tier(mode, rest)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main(sys.argv[1:]))
