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
    "trainer/ops/common": ["base", "base/tensor"],
    "trainer/ops/plan": ["base", "base/tensor", "base/files", "trainer/ops/common"],
    "trainer/ops/product": [
        "base", "base/tensor", "base/files", "trainer/ops/common", "trainer/ops/plan",
    ],
    "trainer/ops/convolution": [
        "base", "base/files", "trainer/ops/common", "trainer/ops/plan", "trainer/ops/product",
    ],
    "trainer/ops/autocast": [
        "base/tensor", "trainer/ops/common", "trainer/ops/product", "trainer/ops/convolution",
    ],
    "trainer/ops/norm": ["base", "trainer/ops/common", "trainer/ops/product"],
    "trainer/ops/attention": ["base", "trainer/ops/common"],
    "trainer/ops/pointwise": ["base/files", "trainer/ops/common"],
    "trainer/ops/token": ["base", "trainer/ops/common", "trainer/ops/product"],
    "trainer/ops/pixels": ["base", "trainer/ops/common"],
    "trainer/ops/update": ["base", "trainer/ops/common"],
    "data/dataset": ["base", "base/files"],
    "data/arrays": ["base", "base/files", "data/dataset"],
    "data/tokens": ["base", "base/files", "data/dataset"],
    "data/tables": ["base", "base/files", "data/dataset"],
    "data/images": ["base", "base/files", "data/dataset"],
    "data/feed": ["base", "base/tensor", "trainer/ops/pixels", "data/dataset", "data/tokens", "data/images"],
    "data/tokenizers": ["base"],
    "prepare": ["base", "base/files", "data/dataset", "data/tokens", "data/images", "data/tokenizers"],
    "prepare/new": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables", "data/images",
    ],
    "observe/machine": ["base", "base/files"],
    "observe/verdict": ["base", "observe/machine"],
    "observe/memory": ["base", "base/files"],
    "observe": [
        "base", "base/tensor", "base/files", "observe/machine", "observe/verdict", "observe/memory", "comm", "trainer/ops/product", "trainer/ops/convolution",
        "trainer/ops/attention", "trainer/ops/update", "data/dataset",
    ],
    "observe/profile": ["base", "base/files", "base/tensor", "observe"],
    "observe/http": ["base", "base/files"],
    "observe/sinks": [
        "base", "base/files", "observe/machine", "observe/verdict", "observe/memory", "observe", "observe/http",
    ],
    "trainer/config/schema": ["base"],
    "trainer/formats": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tokens", "data/tables", "data/images",
        "trainer/config/schema",
    ],
    "trainer/config": ["base", "base/files", "trainer/config/schema", "trainer/formats"],
    "observe/history": [
        "base", "base/files", "ckpt", "observe", "trainer/config/schema", "trainer/config",
    ],
    "observe/page": [
        "base", "base/files", "comm", "comm/watch", "observe", "observe/http", "observe/sinks", "trainer/config",
        "observe/history",
    ],
    "trainer/models/losses": ["base", "data/dataset", "trainer/config/schema"],
    "trainer/models": [
        "base", "base/tensor", "comm", "trainer/ops/common", "trainer/ops/norm", "trainer/ops/token", "data/dataset",
        "trainer/config/schema", "trainer/models/losses",
    ],
    "trainer/models/imported": [
        "base", "base/tensor", "base/files", "comm", "data/dataset", "trainer/ops/product", "trainer/ops/convolution",
        "trainer/ops/norm", "trainer/ops/attention", "trainer/ops/token", "trainer/ops/pointwise", "trainer/models",
    ],
    "trainer/models/built_in": [
        "base", "base/tensor", "trainer/ops/product", "trainer/ops/convolution", "trainer/ops/norm",
        "trainer/ops/attention", "trainer/ops/token", "trainer/ops/pixels", "trainer/models",
        "trainer/models/imported",
    ],
    "trainer/predictions": [
        "base", "base/files", "data/dataset", "data/arrays", "data/tables", "data/images", "trainer/config/schema",
    ],
    "trainer/step": [
        "base", "base/tensor", "comm", "comm/watch", "comm/reduce", "ckpt", "trainer/ops/common",
        "trainer/ops/pixels", "trainer/ops/update", "trainer/ops/autocast", "data/dataset", "data/feed",
        "observe", "observe/profile", "trainer/config/schema", "trainer/models",
    ],
    "trainer/run": [
        "base", "base/tensor", "base/files", "comm", "comm/watch", "comm/reduce", "ckpt", "trainer/ops/autocast",
        "data/dataset", "data/arrays", "data/tables", "data/images", "data/feed", "observe/machine", "observe/memory",
        "observe/verdict", "observe",
        "observe/profile", "observe/sinks", "observe/history", "observe/page", "trainer/config/schema", "trainer/formats",
        "trainer/config", "trainer/models", "trainer/predictions", "trainer/step",
    ],
    "launch/machine": ["base", "base/files", "base/tensor", "observe/machine"],
    "launch/job": [
        "base", "base/files", "comm", "comm/watch", "ckpt", "observe/machine", "trainer/config/schema", "trainer/config",
        "trainer/step", "trainer/run", "launch/machine",
    ],
    "launch/bundle": ["base", "base/files", "launch/machine"],
    "launch/tune": [
        "base", "base/files", "observe/machine", "observe/history", "trainer/config/schema", "trainer/config", "trainer/step",
        "trainer/run", "launch/machine", "launch/job",
    ],
    "launch/folds": [
        "base", "base/files", "observe/history", "trainer/run", "launch/machine", "launch/job",
    ],
    "launch/cli": [
        "base", "base/files", "comm", "comm/watch", "ckpt", "trainer/ops/product", "trainer/ops/convolution",
        "observe/machine", "data/images", "data/feed", "prepare", "prepare/new", "trainer/config/schema", "trainer/formats",
        "trainer/config", "observe/history", "observe/page", "observe/profile", "trainer/step", "trainer/run",
        "launch/machine", "launch/job", "launch/bundle", "launch/tune", "launch/folds",
    ],
    "launch": [
        "base", "comm", "trainer/models", "trainer/models/built_in", "trainer/formats", "trainer/run", "launch/job", "launch/cli",
    ],
    # What only tests use.
    "base/testing": ["base", "base/files"],
    "comm/testing": ["comm"],
    "data/dataset/testing": ["data/dataset"],
    "data/images/testing": ["data/images"],
    "data/tokenizers/testing": [],
    "observe/http/testing": ["base", "base/files"],
    "trainer/ops/testing": ["base/tensor"],
    "trainer/ops/norm/testing": ["trainer/ops/norm"],
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
