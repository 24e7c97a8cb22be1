"""Selects which cases of a test file run: those of the requested tier and of this shard, and GPU cases only on a
machine with a GPU.

`@pytest.mark.all_tier("reason")`, on a test or on one of its parameters' values, leaves the marked cases to `./lockstep
test --all`, which sets $LOCKSTEP_TIER. The reason says in a few words, with a verb, why these cases can wait; a mark
without a reason is refused. With `all_tier("reason", unless=f)`, a case runs on every commit if f returns true for its
parameters. The names of f's arguments say which of the parameters f takes. A case that the command line names with `::`
runs whatever its tier is.

If $CASES_TO is set, it names a file that gets a line for each case of both tiers: `TIER<tab>FILE<tab>CASE<tab>REASON`.
For a case that runs on every commit the reason is empty.
"""

import inspect
import os
import pathlib

import pytest

REASON = "needs a GPU; this machine has none"  # without_gpu.py has the same text


def pytest_configure(config):
    config.addinivalue_line("markers", "all_tier(reason, unless=None): left to `./lockstep test --all`")
    if status_file := os.environ.get("TEST_SHARD_STATUS_FILE"):
        pathlib.Path(status_file).touch()  # tells Bazel that this test supports shards


def reason_to_wait(item):
    """Returns the reason why a case is left to --all, or None if the case runs on every commit."""
    found = None
    for mark in item.iter_markers("all_tier"):
        reason, unless = mark.args[0] if len(mark.args) == 1 else None, mark.kwargs.get("unless")
        if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
            raise pytest.UsageError(
                f'{item.nodeid}: the mark all_tier needs a line that says why these cases can wait: all_tier("reason")'
            )
        wanted = inspect.signature(unless).parameters if unless else ()
        params = {name: item.callspec.params[name] for name in wanted if name in item.callspec.params}
        if found is None and (unless is None or not unless(**params)):
            found = reason.strip()
    return found


def pytest_collection_modifyitems(session, config, items):
    reasons = {item: reason_to_wait(item) for item in items}
    if path := os.environ.get("CASES_TO"):
        lines = []
        for item, reason in reasons.items():
            columns = "all" if reason else "commit", item.path.stem, item.nodeid.partition("::")[2], reason or ""
            lines.append("\t".join(columns) + "\n")
        pathlib.Path(path).write_text("".join(lines))
    kept = items
    if os.environ.get("LOCKSTEP_TIER") != "all" and not any("::" in argument for argument in config.args):
        kept = [item for item in items if reasons[item] is None]
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
    """Makes the test pass if this shard has no case of the requested tier."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and hasattr(session, "are_elsewhere"):
        session.exitstatus = pytest.ExitCode.OK
