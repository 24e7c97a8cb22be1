"""fuzz_target: feeds a parser arbitrary bytes, by libFuzzer for any length of time, and by a test that replays known
inputs."""

load("//tests:pytest_test.bzl", "all_tier_env")

def fuzz_target(name, deps, in_commits = False):
    """Makes two targets from `name`_fuzz.cc, which defines LLVMFuzzerTestOneInput.

    `name`_corpus_test runs it over the files of corpus/`name`: the inputs that libFuzzer kept because they reach more
    code, and the inputs that failed once. `name`_fuzz is libFuzzer's program (tests/fuzz/run.sh builds it with clang).

    Args:
      name: the target's name
      deps: the dependencies of `name`_fuzz.cc
      in_commits: whether every commit's tests replay the corpus, and not only --all
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
