"""fuzz_target: a parser that is fed arbitrary bytes, by libFuzzer for as long as one likes and by a test once more."""

load("//tests:pytest_test.bzl", "all_tier_env")

def fuzz_target(name, deps, in_commits = False):
    """Makes two targets of `name`_fuzz.cc, which defines LLVMFuzzerTestOneInput.

    `name`_corpus_test runs it over the files of corpus/`name`: what libFuzzer found worth keeping, and whatever once
    failed. `name`_fuzz is libFuzzer's program (tests/fuzz/run.sh builds it with clang).

    Args:
      name: of the target
      deps: what `name`_fuzz.cc needs
      in_commits: whether each commit replays the corpus, not only --all
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
