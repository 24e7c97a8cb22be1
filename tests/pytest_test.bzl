"""pytest_test: a file of pytest tests that run the lockstep program."""

def pytest_test(name, size, data = [], env = {}):
    """Runs `name`.py with the wheels' Python; $LOCKSTEP is the program, $DIGITS the digits' CSV file.

    Args:
      name: of the test and, with .py, of its file
      size: Bazel's test size
      data: files that it needs besides
      env: further variables; $(location ...) is a file's path
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests:pytest.sh"],
        args = ["$(location @wheels//:python.sh)", "tests/%s.py" % name],
        data = [
            name + ".py",
            "harness.py",
            "sampler_reference.py",
            "//examples/digits:digits.csv",
            "//launch:lockstep",
            "@wheels//:python.sh",
        ] + data,
        env = dict(
            env,
            DIGITS = "$(location //examples/digits:digits.csv)",
            LOCKSTEP = "$(location //launch:lockstep)",
        ),
        tags = ["cpu:2"],
    )
