"""Gets the suggestions of `lockstep tune` for benchmarks that compare these suggestions with other settings."""

import json
import subprocess
import sys
import time


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


def suggestion(lockstep, config, only, *words):
    """Runs `lockstep tune --only ONLY`, where ONLY is `only`, and prints its lines. Returns the suggested settings,
    {field: value}, and how many seconds `lockstep tune` took."""
    command = [str(word) for word in [lockstep, "tune", config, "--only", only, "--json", *words]]
    began = time.monotonic()
    tuned = subprocess.run(command, capture_output=True, text=True)
    tune_s = time.monotonic() - began
    if tuned.returncode != 0:
        sys.exit(tuned.stderr)
    lines = [json.loads(line) for line in tuned.stdout.split("\n")[:-1]]
    for line in lines:
        print(json.dumps({"tune": line}))
    (found,) = (line["suggestion"] for line in lines if "suggestion" in line)
    return found, tune_s
