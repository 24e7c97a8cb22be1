"""Asks the program data_print (tests/data_print.cc) what the readers of data make of files."""

import json
import os
import subprocess

from harness import path_of


def answers(requests, folder):
    """Returns data_print's answer to each request, from one process. Indexes of images are kept below `folder`."""
    done = subprocess.run(
        [path_of("DATA_PRINT")],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        env=dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")),
    )
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]
