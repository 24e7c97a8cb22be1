"""Lists the rooms (folders with a BUILD file) and the rooms that each room may use. Bazel refuses other dependencies.

A new room is a folder whose BUILD file begins with these two lines:

    load("//rules:rooms.bzl", "users_of")
    package(default_visibility = users_of("the/room"))

A new room also needs an entry in the dict below. A room may use only rooms that are listed above it. Code that only
tests use lies in folders named `testing`, whose targets are testonly and visible to all rooms.
"""

# A dict from each room to the rooms that it uses.
_USES = {
    "base": [],
    "base/tensor": ["base"],
    "base/files": ["base", "base/tensor"],
    "base/http": ["base", "base/files"],
    "comm": ["base", "base/files"],
    "comm/watch": ["base", "base/files", "comm"],
    "comm/reduce": ["base", "base/tensor", "comm"],
    "ckpt": ["base", "base/tensor", "base/files"],
    "ops/common": ["base", "base/tensor"],
    "ops/plan": ["base", "base/tensor", "base/files", "ops/common"],
    "ops/product": ["base", "base/tensor", "base/files", "ops/common", "ops/plan"],
    "ops/convolution": ["base", "base/files", "ops/common", "ops/plan", "ops/product"],
    "ops/autocast": ["base", "base/tensor", "ops/common", "ops/product", "ops/convolution"],
    "ops/norm": ["base", "ops/common", "ops/product"],
    "ops/attention": ["base", "base/tensor", "ops/common"],
    "ops/generated": ["base", "base/tensor", "base/files", "ops/common"],
    "ops/token": ["base", "ops/common", "ops/product"],
    "ops/pixels": ["base", "ops/common"],
    "ops/update": ["base", "ops/common"],
    "data/dataset": ["base", "base/files"],
    "data/arrays": ["base", "base/files", "data/dataset"],
    "data/tokens": ["base", "base/files", "data/dataset"],
    "data/tables": ["base", "base/files", "data/dataset"],
    "data/images": ["base", "base/files", "data/dataset"],
    "data/feed": [
        "base", "base/tensor", "ops/pixels", "data/dataset", "data/tokens", "data/images",
    ],
    "data/tokenizers": ["base"],
    "prepare": [
        "base", "base/files", "data/dataset", "data/tokens", "data/images", "data/tokenizers",
    ],
    "prepare/new": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables",
        "data/images",
    ],
    "config/schema": ["base"],
    "config/formats": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables",
        "data/images", "config/schema",
    ],
    "config": ["base", "base/files", "data/images", "config/schema", "config/formats"],
    "models/losses": ["base", "data/dataset", "config/schema"],
    "models": [
        "base", "base/tensor", "comm", "ops/common", "ops/norm", "ops/token", "data/dataset",
        "config/schema", "models/losses",
    ],
    "models/imported": [
        "base", "base/tensor", "base/files", "comm", "ops/product", "ops/convolution",
        "ops/autocast", "ops/norm", "ops/attention", "ops/generated", "ops/token", "data/dataset",
        "models",
    ],
    "models/built_in": [
        "base", "base/tensor", "ops/product", "ops/convolution", "ops/norm", "ops/attention",
        "ops/token", "ops/pixels", "models", "models/imported",
    ],
    "observe/machine": ["base", "base/files"],
    "observe/verdict": ["observe/machine"],
    "observe/memory": ["base", "base/files"],
    "observe": [
        "base", "base/tensor", "comm", "ops/product", "ops/convolution", "ops/attention",
        "ops/update", "data/dataset", "observe/machine", "observe/verdict", "observe/memory",
    ],
    "observe/profile": ["base", "base/tensor", "base/files", "observe"],
    "observe/sinks": [
        "base", "base/files", "base/http", "observe/machine", "observe/memory", "observe",
    ],
    "observe/history": ["base", "base/files", "ckpt", "config/schema", "config", "observe"],
    "observe/page": [
        "base", "base/files", "base/http", "comm", "comm/watch", "config", "observe",
        "observe/sinks", "observe/history",
    ],
    "trainer/step": [
        "base", "base/tensor", "comm", "comm/watch", "comm/reduce", "ckpt", "ops/common",
        "ops/autocast", "ops/pixels", "ops/update", "data/dataset", "data/feed", "config/schema",
        "models", "observe", "observe/profile",
    ],
    "trainer/run": [
        "base", "base/tensor", "base/files", "comm", "comm/watch", "ckpt", "ops/autocast",
        "ops/generated", "data/dataset", "data/tables", "data/images", "data/feed",
        "config/schema", "config/formats", "config", "models", "observe/machine",
        "observe/verdict", "observe/memory", "observe", "observe/profile", "observe/sinks",
        "observe/history", "observe/page", "trainer/step",
    ],
    "use": [
        "base", "base/files", "comm", "comm/reduce", "ckpt", "data/dataset", "data/arrays",
        "data/tables", "data/images", "data/feed", "config/schema", "config/formats", "config",
        "models", "observe", "observe/history", "trainer/step", "trainer/run",
    ],
    "launch/machine": ["base", "base/tensor", "base/files", "observe/machine"],
    "launch/job": [
        "base", "base/files", "comm", "comm/watch", "ckpt", "config/schema", "observe/machine",
        "trainer/step", "trainer/run", "launch/machine",
    ],
    "launch/crew": [
        "base", "base/files", "ckpt", "observe/history", "launch/machine", "launch/job",
    ],
    "launch/bundle": ["base", "base/files", "launch/machine"],
    "launch/tune": [
        "base", "base/files", "config/schema", "config", "observe/machine", "observe",
        "observe/history", "trainer/step", "trainer/run", "launch/crew",
    ],
    "launch/folds": ["base", "observe/history", "launch/crew"],
    "launch/cli/command": [
        "base", "base/files", "comm", "config/schema", "config", "observe/machine", "trainer/step",
        "trainer/run", "use", "launch/machine", "launch/job",
    ],
    "launch/cli/data": [
        "base", "base/files", "prepare", "prepare/new", "config", "launch/cli/command",
    ],
    "launch/cli/training": [
        "base", "base/files", "comm", "config/schema", "config/formats", "config", "trainer/step",
        "trainer/run", "use", "launch/machine", "launch/job", "launch/bundle", "launch/tune",
        "launch/folds", "launch/cli/command",
    ],
    "launch/cli/runs": [
        "base", "base/files", "comm/watch", "ckpt", "observe/machine", "observe", "observe/profile",
        "observe/history", "observe/page", "trainer/run", "use", "launch/cli/command",
    ],
    "launch/cli/machine": [
        "base", "base/files", "comm", "ops/product", "ops/convolution", "ops/generated",
        "data/images", "data/feed", "config", "trainer/step", "trainer/run", "launch/machine",
        "launch/job", "launch/bundle", "launch/cli/command",
    ],
    "launch/cli": [
        "base", "launch/cli/command", "launch/cli/data", "launch/cli/training", "launch/cli/runs",
        "launch/cli/machine",
    ],
    "launch": [
        "base", "comm", "config/formats", "models", "models/built_in", "trainer/run", "launch/job",
        "launch/cli/command", "launch/cli",
    ],
    # Only tests use these rooms.
    "base/testing": ["base", "base/files"],
    "comm/testing": ["comm"],
    "data/dataset/testing": ["data/dataset"],
    "data/images/testing": ["data/images"],
    "data/tokenizers/testing": [],
    "base/http/testing": ["base", "base/files"],
    "ops/testing": ["base/tensor"],
    "ops/norm/testing": ["ops/norm"],
    "ops/generated/testing": ["base/testing", "ops/generated"],
}

def users_of(room):
    """Returns the visibility of a room's targets: the rooms that use the room, and the tests in //tests.

    Args:
      room: the folder of the room
    Returns:
      a list of package specifications
    """
    above = []
    for name, used in _USES.items():
        for other in used:
            if other not in above:
                fail("rules/rooms.bzl: %s uses %s, which stands below it" % (name, other))
        above.append(name)
    if room not in _USES:
        fail("rules/rooms.bzl has no room %s: add a line for it" % room)
    if room.endswith("/testing"):
        return ["//:__subpackages__"]
    users = ["//%s:__pkg__" % user for user, used in _USES.items() if room in used]
    return users + ["//tests:__subpackages__"]
