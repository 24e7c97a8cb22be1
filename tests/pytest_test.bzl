"""pytest_test: a file of pytest tests that run the lockstep program, on the CPU and again on GPUs."""

def pytest_test(name, size, data = [], env = {}):
    """Runs `name`.py with the wheels' Python; $LOCKSTEP is the program, $DIGITS the digits' CSV file.

    `name`_on_gpus is the same with $DEVICE = CUDA; without a GPU each of its cases is skipped.

    Args:
      name: of the test and of its file
      size: Bazel's test size
      data: files that it needs besides
      env: further variables; $(location ...) is a file's path
    """
    for suffix, size, device in [("", size, {}), ("_on_gpus", "large", {"DEVICE": "CUDA"})]:
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
                "//tests:%s.py" % name,
                "@wheels//:python.sh",
            ] + data,
            env = dict(
                env,
                DIGITS = "$(location //examples/digits:digits.csv)",
                LOCKSTEP = "$(location //launch:lockstep)",
                **device
            ),
            tags = ["cpu:2"],
        )
