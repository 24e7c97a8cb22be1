"""The rooms of the house, and who may use whom: an arrow that is not here does not build.

A new room is a folder with a BUILD file that begins

    load("//rules:rooms.bzl", "users_of")
    package(default_visibility = users_of("the/room"))

and a line below. Arrows go up the page only. What only tests use lies in folders named testing, which are
testonly and open to all rooms.
"""

# Each room -> the rooms that it uses.
_USES = {
    "base": [],
    "base/tensor": ["base"],
    "base/files": ["base", "base/tensor"],
    "comm": ["base", "base/files"],
    "comm/watch": ["base", "base/files", "comm"],
    "comm/reduce": ["base", "base/tensor", "comm"],
    "ckpt": ["base", "base/tensor", "base/files"],
    "ops/common": ["base", "base/tensor"],
    "ops/plan": ["base", "base/tensor", "base/files", "ops/common"],
    "ops/product": [
        "base", "base/tensor", "base/files", "ops/common", "ops/plan",
    ],
    "ops/convolution": [
        "base", "base/files", "ops/common", "ops/plan", "ops/product",
    ],
    "ops/autocast": [
        "base/tensor", "ops/common", "ops/product", "ops/convolution",
    ],
    "ops/norm": ["base", "ops/common", "ops/product"],
    "ops/attention": ["base", "ops/common"],
    "ops/generated": ["base/files", "ops/common"],
    "ops/token": ["base", "ops/common", "ops/product"],
    "ops/pixels": ["base", "ops/common"],
    "ops/update": ["base", "ops/common"],
    "data/dataset": ["base", "base/files"],
    "data/arrays": ["base", "base/files", "data/dataset"],
    "data/tokens": ["base", "base/files", "data/dataset"],
    "data/tables": ["base", "base/files", "data/dataset"],
    "data/images": ["base", "base/files", "data/dataset"],
    "data/feed": ["base", "base/tensor", "ops/pixels", "data/dataset", "data/tokens", "data/images"],
    "data/tokenizers": ["base"],
    "prepare": ["base", "base/files", "data/dataset", "data/tokens", "data/images", "data/tokenizers"],
    "prepare/new": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables", "data/images",
    ],
    "observe/machine": ["base", "base/files"],
    "observe/verdict": ["base", "observe/machine"],
    "observe/memory": ["base", "base/files"],
    "observe": [
        "base", "base/tensor", "base/files", "observe/machine", "observe/verdict", "observe/memory", "comm", "ops/product", "ops/convolution",
        "ops/attention", "ops/update", "data/dataset",
    ],
    "observe/profile": ["base", "base/files", "base/tensor", "observe"],
    "base/http": ["base", "base/files"],
    "observe/sinks": [
        "base", "base/files", "observe/machine", "observe/verdict", "observe/memory", "observe", "base/http",
    ],
    "config/schema": ["base"],
    "config/formats": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables", "data/images",
        "config/schema",
    ],
    "config": ["base", "base/files", "config/schema", "config/formats"],
    "observe/history": [
        "base", "base/files", "ckpt", "observe", "config/schema", "config",
    ],
    "observe/page": [
        "base", "base/files", "comm", "comm/watch", "observe", "base/http", "observe/sinks", "config",
        "observe/history",
    ],
    "models/losses": ["base", "data/dataset", "config/schema"],
    "models": [
        "base", "base/tensor", "comm", "ops/common", "ops/norm", "ops/token", "data/dataset",
        "config/schema", "models/losses",
    ],
    "models/imported": [
        "base", "base/tensor", "base/files", "comm", "data/dataset", "ops/product", "ops/convolution",
        "ops/norm", "ops/attention", "ops/token", "ops/generated", "models",
    ],
    "models/built_in": [
        "base", "base/tensor", "ops/product", "ops/convolution", "ops/norm",
        "ops/attention", "ops/token", "ops/pixels", "models",
        "models/imported",
    ],
    "use": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tables", "data/images", "config/schema",
    ],
    "trainer/step": [
        "base", "base/tensor", "comm", "comm/watch", "comm/reduce", "ckpt", "ops/common",
        "ops/pixels", "ops/update", "ops/autocast", "data/dataset", "data/feed",
        "observe", "observe/profile", "config/schema", "models",
    ],
    "trainer/run": [
        "base", "base/tensor", "base/files", "comm", "comm/watch", "comm/reduce", "ckpt", "ops/autocast",
        "data/dataset", "data/arrays", "data/tables", "data/images", "data/feed", "observe/machine", "observe/memory",
        "observe/verdict", "observe",
        "observe/profile", "observe/sinks", "observe/history", "observe/page", "config/schema", "config/formats",
        "config", "models", "use", "trainer/step",
    ],
    "launch/machine": ["base", "base/files", "base/tensor", "observe/machine"],
    "launch/job": [
        "base", "base/files", "comm", "comm/watch", "ckpt", "observe/machine", "config/schema", "config",
        "trainer/step", "trainer/run", "launch/machine",
    ],
    "launch/bundle": ["base", "base/files", "launch/machine"],
    "launch/tune": [
        "base", "base/files", "observe/machine", "observe/history", "config/schema", "config", "trainer/step",
        "trainer/run", "launch/machine", "launch/job",
    ],
    "launch/folds": [
        "base", "base/files", "observe/history", "trainer/run", "launch/machine", "launch/job",
    ],
    "launch/cli": [
        "base", "base/files", "comm", "comm/watch", "ckpt", "ops/product", "ops/convolution",
        "observe/machine", "data/images", "data/feed", "prepare", "prepare/new", "config/schema", "config/formats",
        "config", "observe/history", "observe/page", "observe/profile", "trainer/step", "trainer/run",
        "launch/machine", "launch/job", "launch/bundle", "launch/tune", "launch/folds",
    ],
    "launch": [
        "base", "comm", "models", "models/built_in", "config/formats", "trainer/run", "launch/job", "launch/cli",
    ],
    # What only tests use.
    "base/testing": ["base", "base/files"],
    "comm/testing": ["comm"],
    "data/dataset/testing": ["data/dataset"],
    "data/images/testing": ["data/images"],
    "data/tokenizers/testing": [],
    "base/http/testing": ["base", "base/files"],
    "ops/testing": ["base/tensor"],
    "ops/norm/testing": ["ops/norm"],
}

def users_of(room):
    """The visibility of a room's targets: the rooms that use it, and tests, which cross rooms.

    Args:
      room: its folder
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
