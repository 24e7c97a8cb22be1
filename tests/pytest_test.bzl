"""pytest_test: a file of pytest tests that run the lockstep program."""

def pytest_test(name, size, file = None, data = [], env = {}):
    """Runs a file of tests/ with the wheels' Python; $LOCKSTEP is the program, $DIGITS the digits' CSV file.

    Args:
      name: of the test
      size: Bazel's test size
      file: in tests/; without it `name`.py
      data: files that it needs besides
      env: further variables; $(location ...) is a file's path
    """
    file = file or name + ".py"
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests:pytest.sh"],
        args = ["$(location @wheels//:python.sh)", "tests/" + file],
        data = [
            "//examples/digits:digits.csv",
            "//launch:lockstep",
            "//tests:" + file,
            "//tests:conftest.py",
            "//tests:harness.py",
            "//tests:sampler_reference.py",
            "@wheels//:python.sh",
        ] + data,
        env = dict(
            env,
            DIGITS = "$(location //examples/digits:digits.csv)",
            LOCKSTEP = "$(location //launch:lockstep)",
        ),
        tags = ["cpu:2"],
    )
