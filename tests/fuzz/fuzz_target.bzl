"""fuzz_target(): makes targets that feed a parser arbitrary bytes: a libFuzzer program, and a test that replays known
inputs."""

load("//tests:pytest_test.bzl", "all_tier_env")

def fuzz_target(name, deps, in_commits = False):
    """Makes a test and a program from `name`_fuzz.cc, which defines LLVMFuzzerTestOneInput.

    The test `name`_corpus_test calls LLVMFuzzerTestOneInput with each file of corpus/`name`: the inputs that libFuzzer
    kept because they reach more code, and inputs that failed once. `name`_fuzz is the libFuzzer program, which
    tests/fuzz/run.sh builds with clang.

    Args:
      name: the name of the parser, from which all names above are made
      deps: the dependencies of `name`_fuzz.cc
      in_commits: whether the tests of every commit replay the corpus; if not, only `run_tests.py --all` does
    """
    native.cc_library(
        name = name + "_entry",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps,
        alwayslink = True,
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        srcs = ["replay_corpus.cc"],
        data = native.glob(["corpus/%s/*" % name]),
        env = dict(
            {} if in_commits else all_tier_env("a parser changes rarely, and the tests beside it have each mistake"),
            CORPUS = "tests/fuzz/corpus/" + name,
        ),
        tags = [] if in_commits else ["all"],
        deps = [
            ":" + name + "_entry",
            "@system//:gtest_main",
        ],
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        tags = ["manual"],
        linkopts = ["-fsanitize=fuzzer"],
        deps = [":" + name + "_entry"],
    )
