"""Macros that make Bazel tests of pytest files, which run the lockstep program on the CPU and on GPUs."""

def all_tier_env(why):
    """Returns the environment variable that says why a target runs only with --all. `./lockstep test --list` prints it.

    Args:
      why: the reason, in a few words with a verb
    Returns:
      a dict, which is a part of the target's env
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
    """Makes the test `name`, which runs `name`.py with the Python of the wheels on the CPU, and a variant of it for
    GPUs.

    In the tests $LOCKSTEP is the path of the program, and $DIGITS that of the digits' CSV file. The variant
    `name`_on_gpus sets $DEVICE to CUDA. On a machine without a GPU, the variant does not start pytest, and reports as
    skipped each case of the file that the target `:cases` lists.

    Args:
      name: the name of the test, and of its file without .py
      size: Bazel's test size
      data: further files that the test needs
      env: further environment variables; $(location ...) is the path of a file
      tier: "all" if no case of the file runs on every commit; otherwise conftest.py chooses the cases that
        run on every commit
      why: with tier = "all", the reason why the file runs only with --all, in a few words with a verb
      cpus: how many of the three places for tests (on two cores) the test takes: 3 if it measures times or races
        against a process, so that it runs alone; otherwise 1
      shards: the number of processes among which the cases are divided, for a file that takes longer than other files
      on_gpus: False if the test does the same with and without a GPU, so that there is no variant for GPUs
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
            # The variant for GPUs counts as one core. Without a GPU it takes no time, but if it counted as several
            # cores, cores would stay idle until enough of them were free for it.
            tags = ["cpu:%d" % (1 if suffix else cpus)] + (["all"] if tier == "all" else []),
        )

def gpu_pytest(name, size, data = [], env = {}):
    """Makes the test `name`, which runs tests/gpu/`name`.py, whose cases all need a GPU. It runs only with --all.

    In the test $LOCKSTEP is the path of the program, and $DIGITS that of the digits' CSV file.

    Args:
      name: the name of the test, and of its file without .py
      size: Bazel's test size
      data: further files that the test needs
      env: further environment variables; $(location ...) is the path of a file
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
    """Makes a file with a line `TIER<tab>FILE<tab>CASE<tab>REASON` for each case of the pytest files (conftest.py).

    Args:
      name: the name of the target, and of the file without .tsv
      srcs: the files tests/*.py; those named *_test.py contain the cases
    """
    native.genrule(
        name = name,
        testonly = True,
        srcs = srcs + [
            "//docs:models.md",
            "//examples/digits:digits.csv",
            "//examples/kaggle:notebooks",
            # Some tests have a case for each value that `lockstep config --template` prints, so listing the cases runs
            # lockstep.
            "//launch:lockstep",
            "//python:lockstep",
            "@wheels//:python.sh",
        ],
        outs = [name + ".tsv"],
        # The output of pytest is printed only if pytest fails.
        cmd = " ".join([
            "env PYTHONDONTWRITEBYTECODE=1 CASES_TO=$@",
            "DIGITS=$(location //examples/digits:digits.csv)",
            "LOCKSTEP=$(location //launch:lockstep)",
            "$(location @wheels//:python.sh) -m pytest -q -p no:cacheprovider --collect-only",
        ] + ["$(location %s)" % src for src in srcs if src.endswith("_test.py")] + [
            "> $@.log || { cat $@.log; exit 1; }; rm $@.log",
        ]),
    )
