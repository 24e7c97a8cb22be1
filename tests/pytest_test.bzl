"""Files of pytest tests that run the lockstep program: pytest_test on the CPU and again on GPUs, gpu_pytest on GPUs."""

def all_tier_env(why):
    """The variable of a target that is left to --all, which `./lockstep test --list` reads: why it can wait.

    Args:
      why: a few words with a verb
    Returns:
      a part of the target's env
    """
    return {"WHY_IN_ALL_TIER": why}

def pytest_test(
        name,
        size,
        data = [],
        env = {},
        tier = "commit",
        why = "",
        cpus = 1,
        shards = None,
        on_gpus = True):
    """Runs `name`.py with the wheels' Python; $LOCKSTEP is the program, $DIGITS the digits' CSV file.

    `name`_on_gpus is the same with $DEVICE = CUDA; without a GPU each of its cases is skipped, and pytest not even
    started: `:cases` has listed them when it was built.

    Args:
      name: of the test and of its file
      size: Bazel's test size
      data: files that it needs besides
      env: further variables; $(location ...) is a file's path
      tier: "all" where no case of the file is for every commit; else conftest.py chooses among them
      why: with tier = "all", a few words with a verb that say why the file can wait
      cpus: 3 for what measures or races, so that it runs alone on two cores; the others run three at once
      shards: number of processes that share the cases, for a file that the others would end before
      on_gpus: False where no GPU makes a difference
    """
    if tier not in ["all", "commit"] or (tier == "all") != bool(why):
        fail("%s: tier = \"all\" and why = \"...\" go together: say why these tests can wait" % name)
    tier_env = all_tier_env(why) if tier == "all" else {}
    variants = [("", size, tier_env, [], shards)]
    if on_gpus:
        variants.append(("_on_gpus", "large", dict(
            tier_env,
            CASES = "$(location //tests:cases)",
            DEVICE = "CUDA",
        ), [
            "//tests:cases",
            "//tests:without_gpu.py",
        ], None))
    for suffix, size, own_env, own_data, shard_count in variants:
        native.sh_test(
            name = name + suffix,
            size = size,
            srcs = ["//tests:pytest.sh"],
            args = ["$(location @wheels//:python.sh)", "tests/%s.py" % name],
            data = [
                "//examples/digits:digits.csv",
                "//launch:lockstep",
                "//tests:conftest.py",
                "//tests:harness.py",
                "//tests:sampler_reference.py",
                "//tests:tabm_reference.py",
                "//tests:%s.py" % name,
                "@wheels//:python.sh",
            ] + own_data + data,
            env = dict(
                env,
                DIGITS = "$(location //examples/digits:digits.csv)",
                LOCKSTEP = "$(location //launch:lockstep)",
                **own_env
            ),
            shard_count = shard_count,
            # A twin without a GPU takes no time, and one that waited for both cores would stop what runs on the other.
            tags = ["cpu:%d" % (1 if suffix else cpus)] + (["all"] if tier == "all" else []),
        )

def gpu_pytest(name, size, data = [], env = {}):
    """Runs tests/gpu/`name`.py, whose cases all need a GPU. $LOCKSTEP is the program, $DIGITS the digits' CSV file.

    Args:
      name: of the test and of its file
      size: Bazel's test size
      data: files that it needs besides
      env: further variables; $(location ...) is a file's path
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests:pytest.sh"],
        args = ["$(location @wheels//:python.sh)", "tests/gpu/%s.py" % name],
        data = [
            name + ".py",
            "//examples/digits:digits.csv",
            "//launch:lockstep",
            "//tests:conftest.py",
            "//tests:harness.py",
            "@wheels//:python.sh",
        ] + data,
        env = dict(
            env,
            DIGITS = "$(location //examples/digits:digits.csv)",
            LOCKSTEP = "$(location //launch:lockstep)",
            **all_tier_env("only a GPU can run it, and it takes minutes")
        ),
        tags = ["all"],
    )

def pytest_cases(name, srcs):
    """A file that lists the cases of all tests: one line `TIER<tab>FILE<tab>CASE<tab>REASON` each (conftest.py).

    Args:
      name: of the target and the file
      srcs: tests/*.py, of which those of *_test.py hold tests
    """
    native.genrule(
        name = name,
        testonly = True,
        srcs = srcs + [
            "//docs:models.md",
            "//examples/digits:digits.csv",
            "//examples/kaggle:notebooks",
            # `config --template` says which values some cases go through.
            "//launch:lockstep",
            "//python:lockstep",
            "@wheels//:python.sh",
        ],
        outs = [name + ".tsv"],
        # The report of pytest is of interest only where it fails.
        cmd = " ".join([
            "env PYTHONDONTWRITEBYTECODE=1 CASES_TO=$@",
            "DIGITS=$(location //examples/digits:digits.csv)",
            "LOCKSTEP=$(location //launch:lockstep)",
            "$(location @wheels//:python.sh) -m pytest -q -p no:cacheprovider --collect-only",
        ] + ["$(location %s)" % src for src in srcs if src.endswith("_test.py")] + [
            "> $@.log || { cat $@.log; exit 1; }; rm $@.log",
        ]),
    )
