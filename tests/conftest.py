"""Which of a file's cases run: of the tier that is asked for this shard's; on a GPU only where there is one.

`@pytest.mark.all_tier`, on a test or on one of its parameters' values, leaves cases to `./lockstep test --all`, which
sets $LOCKSTEP_TIER. `all_tier(unless=f)` keeps those of whose parameters f is true: f takes the ones that it names. A
case that the command line names with `::` runs whatever its tier.

$CASES_TO is a file for a line of each case, `TIER<tab>FILE<tab>CASE`, of both tiers.
"""

import inspect
import os
import pathlib

import pytest

REASON = "needs a GPU; this machine has none"  # without_gpu.py says the same


def pytest_configure(config):
    config.addinivalue_line("markers", "all_tier(unless=None): left to `./lockstep test --all`")
    if status_file := os.environ.get("TEST_SHARD_STATUS_FILE"):
        pathlib.Path(status_file).touch()  # Bazel's sign that shards are known here


def tier_of(item):
    for mark in item.iter_markers("all_tier"):
        unless = mark.kwargs.get("unless")
        if unless is None:
            return "all"
        wanted = inspect.signature(unless).parameters
        if not unless(**{name: value for name, value in item.callspec.params.items() if name in wanted}):
            return "all"
    return "commit"


def pytest_collection_modifyitems(session, config, items):
    if path := os.environ.get("CASES_TO"):
        lines = (f"{tier_of(item)}\t{item.path.stem}\t{item.nodeid.partition('::')[2]}\n" for item in items)
        pathlib.Path(path).write_text("".join(lines))
    kept = items
    if os.environ.get("LOCKSTEP_TIER") != "all" and not any("::" in argument for argument in config.args):
        kept = [item for item in items if tier_of(item) == "commit"]
    shards = int(os.environ.get("TEST_TOTAL_SHARDS") or 1)
    kept = kept[int(os.environ.get("TEST_SHARD_INDEX") or 0) :: shards]
    if len(kept) < len(items):
        chosen = set(kept)
        session.are_elsewhere = [item for item in items if item not in chosen]
        config.hook.pytest_deselected(items=session.are_elsewhere)
        items[:] = kept
    if items and os.environ.get("DEVICE") == "CUDA":
        import torch

        if not torch.cuda.is_available():
            for item in items:
                item.add_marker(pytest.mark.skip(reason=REASON))


def pytest_sessionfinish(session, exitstatus):
    """No case of this tier, or fewer than shards, is no error."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and hasattr(session, "are_elsewhere"):
        session.exitstatus = pytest.ExitCode.OK
