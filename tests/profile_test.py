"""Tests profiles of a run, which the config or a request starts: the traces of each rank, and the table of the heaviest
kernels. The training's results stay the same, bit for bit."""

import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from harness import (
    CHECKPOINT,
    DEVICE,
    DONE,
    LOCKSTEP,
    STOPPED,
    USAGE,
    Run,
    Started,
    digits_config,
    digits_data,
    events,
    expect_error,
    faulty_model,
    losses_by_step,
    path_of,
    sets,
    skip_without_gpus,
    train,
    wait_until,
    weight_bytes,
    write_config,
)

FAULT_AT = path_of("FAULT_AT_SO")
FAULTY = path_of("FAULTY")
NVTX_NAMES = path_of("NVTX_NAMES_SO")
PHASES = {"read", "copy", "forward", "backward", "exchange", "update", "rest"}


def config_in(folder, more="", model=None):
    return write_config(folder, digits_config(more, **({"model": model} if model else {})))


def traces(run_dir, step):
    folder = pathlib.Path(run_dir) / "profiles" / str(step) / "traces"
    return [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.glob("rank_*.pt.trace.json.gz"))]


def summary(run_dir, step):
    return json.loads((pathlib.Path(run_dir) / "profiles" / str(step) / "summary.json").read_text())


def work_of(trace):
    """Returns the events of the profiled steps: kernels, copies and memsets on a GPU, or operations on a CPU."""
    kinds = ("kernel", "gpu_memcpy", "gpu_memset") if DEVICE == "CUDA" else ("cpu_op",)
    return [e for e in trace["traceEvents"] if e.get("cat") in kinds and "step" in e.get("args", {})]


def expect_whole(run_dir, step, steps, ranks):
    """Checks that each rank's trace covers the `steps` steps from `step` on, and that the summary agrees with the
    traces."""
    found = traces(run_dir, step)
    assert len(found) == ranks
    for rank, (trace, row) in enumerate(zip(found, summary(run_dir, step)["ranks"], strict=True)):
        assert trace["distributedInfo"]["rank"] == row["rank"] == rank
        assert trace["distributedInfo"]["world_size"] == ranks
        work = work_of(trace)
        assert {e["args"]["step"] for e in work} == set(range(step, step + steps))
        assert {e["args"]["phase"] for e in work if "phase" in e["args"]} <= PHASES
        time_of = (lambda e: e["dur"]) if DEVICE == "CUDA" else (lambda e: e["args"]["self_us"])
        in_phase = sum(time_of(e) for e in work if "phase" in e["args"]) / sum(map(time_of, work))
        assert in_phase == pytest.approx(row["attributed_share"], abs=1e-6) and in_phase >= 0.98
        for kernel in row["kernels"][:10]:
            calls = [e for e in work if e["name"] == kernel["name"] and e["args"].get("phase", "") == kernel["phase"]]
            assert len(calls) == kernel["calls"] * steps
            assert sum(map(time_of, calls)) / 1e3 / steps == pytest.approx(kernel["ms"], rel=1e-6)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank is profiled as two are", unless=lambda ranks: ranks == 2)
def test_on_request(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 3)
        asked = Run(["profile", job.run_dir, "--steps", "3", "--json"])
        assert asked.status == DONE, asked
        printed = json.loads(asked.out)
        assert (printed["steps"], len(printed["ranks"])) == (3, ranks or 1)
        expect_whole(job.run_dir, printed["step"], 3, ranks or 1)
        again = Run(["profile", job.run_dir])
        assert again.status == DONE and "ms a step" in again.out and "traces for ui.perfetto.dev" in again.out, again
        assert not (job.run_dir / "profile.request").exists()
        assert job.stop()[0] == STOPPED
    (first, second) = events(job.run_dir, "profile")
    assert first["step"] == printed["step"] and first["steps"] == 3 and second["steps"] == 5
    last = max(losses_by_step(job.run_dir))
    assert train(config, tmp_path / "whole", *sets(f"max_steps={last}"), ranks=ranks).status == DONE
    assert losses_by_step(job.run_dir) == losses_by_step(tmp_path / "whole")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Returns the folder of a run of 50 steps on two ranks with three profiles."""
    skip_without_gpus(2)
    folder = tmp_path_factory.mktemp("profiled")
    config = config_in(folder, "max_steps: 50 profile { first_step: 5 steps: 2 every: 20 }")
    run = train(config, folder / "run", ranks=2)
    assert run.status == DONE, run
    return folder / "run"


def test_by_config(profiled, tmp_path):
    assert [e["step"] for e in events(profiled, "profile")] == [5, 25, 45]
    for step in (5, 25, 45):
        expect_whole(profiled, step, 2, 2)
        table = Run(["profile", f"{profiled}@{step}"])
        assert table.status == DONE and table.out.count("ms a step:") == 2, table
    assert train(config_in(tmp_path, "max_steps: 50"), tmp_path / "plain", ranks=2).status == DONE
    assert losses_by_step(profiled) == losses_by_step(tmp_path / "plain")
    assert weight_bytes(profiled) == weight_bytes(tmp_path / "plain")


def test_modules_and_phases(profiled):
    """Checks that kernels are assigned to the model's modules: its layers in the forward, and the same modules in the
    backward."""
    rows = {(k["phase"], k["module"]) for k in summary(profiled, 25)["ranks"][0]["kernels"]}
    modules = {module for phase, module in rows if phase == "forward"}
    assert any(re.fullmatch(r"[\d*]+", module) for module in modules), rows
    assert any(phase == "backward" and module in modules for phase, module in rows), rows
    assert any(phase == "update" for phase, _ in rows), rows


def test_two_profiles_compared(profiled):
    same = Run(["compare", f"{profiled}@5", f"{profiled}@5", "--json"])
    assert same.status == DONE, same
    assert all(k["before_ms"] == k["after_ms"] for k in json.loads(same.out)["kernels"])
    trace = profiled / "profiles/25/traces/rank_0.pt.trace.json.gz"
    both = Run(["compare", f"{profiled}@25", trace, "--json"])
    assert both.status == DONE, both
    for kernel in json.loads(both.out)["kernels"]:
        assert kernel["before_ms"] == pytest.approx(kernel["after_ms"], rel=1e-6)
    table = Run(["compare", f"{profiled}@5", f"{profiled}@45"])
    assert table.status == DONE and "before" in table.out, table


def test_what_cannot_be_compared(profiled, tmp_path):
    expect_error(Run(["compare", profiled, f"{profiled}@5"]), USAGE, "compare two profiles")
    expect_error(Run(["compare", f"{profiled}@5", f"{profiled}@6"]), USAGE, "no profile of step 6, but of steps 5, 25, 45")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((profiled / "profiles/5/traces/rank_0.pt.trace.json.gz").read_bytes()[:1000])
    expect_error(Run(["profile", cut]), USAGE, str(cut), "cut short")
    expect_error(Run(["profile", __file__]), USAGE, __file__, "no Chrome trace")


def test_a_run_that_has_ended(profiled, tmp_path):
    expect_error(Run(["profile", profiled]), USAGE, "no job trains in it now", f"{profiled}@45 prints its last profile")
    expect_error(Run(["profile", tmp_path]), USAGE, f"{tmp_path}: it is no run folder")
    expect_error(Run(["profile", tmp_path / "none"]), USAGE, "there is no such folder")


def test_a_trace_of_pytorch(tmp_path):
    """Checks that, for a trace that PyTorch wrote, the table has the figures of PyTorch's profiler."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    with torch.profiler.profile() as profiler:
        for _ in range(3):
            model(torch.ones(32, 64)).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "torch.json"))
    table = Run(["profile", tmp_path / "torch.json", "--json"])
    assert table.status == DONE, table
    rows = json.loads(table.out)["ranks"][0]["kernels"]
    expected = {a.key: (a.count, a.self_cpu_time_total) for a in profiler.key_averages()}
    for name in ("aten::addmm", "aten::mm", "aten::relu"):
        count, us = expected[name]
        assert sum(r["calls"] for r in rows if r["name"] == name) == count
        assert sum(r["ms"] for r in rows if r["name"] == name) == pytest.approx(us / 1e3, rel=0.02, abs=1e-3)


def test_a_kernel_that_becomes_slower(tmp_path):
    model = faulty_model(grows_to=1024 if DEVICE == "CPU" else 8192, at=20)
    config = config_in(tmp_path, "max_steps: 40 graph: false profile { first_step: 5 steps: 3 every: 25 }", model=model)
    run = train(config, tmp_path / "run", program=FAULTY)
    assert run.status == DONE, run
    first, second = events(tmp_path / "run", "profile")
    assert first["slower"] == []
    # The matrix product is slowed down most. The operation that fills its matrix also takes longer, and later
    # operations that use the same caches may take longer.
    sentence = second["slower"][0]
    assert ("aten::mm in forward" in sentence) if DEVICE == "CPU" else "in forward" in sentence
    assert f"slower: {sentence}" in run.out


@pytest.mark.all_tier("ten healthy runs show only that nothing is named")
@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_has_no_slower_kernel(tmp_path, seed):
    ranks = 2 if seed % 2 else None
    skip_without_gpus(ranks)
    config = config_in(tmp_path, f"seed: {seed + 1} max_steps: 120 profile {{ first_step: 10 steps: 5 every: 50 }}")
    assert train(config, tmp_path / "run", ranks=ranks).status == DONE
    assert [e["slower"] for e in events(tmp_path / "run", "profile")] == [[], [], []]


def test_a_disk_that_takes_no_trace(tmp_path):
    run_dir = tmp_path / "run"
    env = {"LD_PRELOAD": FAULT_AT, "FAULT": "ENOSPC", "FAULT_AT": "1", "FAULT_PATH": f"{run_dir}/profiles/"}
    config = config_in(tmp_path, "max_steps: 20 profile { first_step: 5 steps: 2 }")
    run = train(config, run_dir, env=env)
    assert run.status == DONE, run
    (warning,) = [e["reason"] for e in events(run_dir, "warning") if "no profile of step 5" in e["reason"]]
    assert "No space left" in warning
    assert events(run_dir, "profile") == []


@contextlib.contextmanager
def asking(job):
    """Suspends the job, and yields (the job's process id, a `profile` command that has requested a profile and waits
    for it)."""
    job.wait_for("step", 3)
    rank = job.process.pid
    os.kill(rank, signal.SIGSTOP)
    asked = subprocess.Popen(
        [LOCKSTEP, "profile", job.run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: (job.run_dir / "profile.request").exists())
    yield rank, asked
    asked.kill()
    asked.wait()


def test_two_requests(tmp_path):
    with Started(config_in(tmp_path), tmp_path / "run") as job, asking(job) as (rank, asked):
        expect_error(Run(["profile", job.run_dir]), USAGE, "a profile is asked for already")
        os.kill(rank, signal.SIGCONT)
        out, err = asked.communicate()
        assert asked.returncode == DONE and "ms a step" in out, (out, err)
        assert job.stop()[0] == STOPPED


def test_a_run_that_ends_meanwhile(tmp_path):
    with Started(config_in(tmp_path), tmp_path / "run") as job, asking(job) as (rank, asked):
        os.kill(rank, signal.SIGKILL)
        out, err = asked.communicate()
        assert asked.returncode == CHECKPOINT and "there is no new profile" in err, (out, err)
    assert not (job.run_dir / "profile.request").exists()


def test_a_run_that_ends_within_a_profile(tmp_path):
    run_dir = tmp_path / "run"
    assert train(config_in(tmp_path, "max_steps: 6 profile { first_step: 5 }"), run_dir).status == DONE
    expect_whole(run_dir, 5, 2, 1)


def test_a_profile_ends_with_the_epoch(tmp_path):
    """Checks that a profile of four steps that begins in step 25 ends after two steps, because the epoch ends
    after step 26. The evaluation after the epoch is not part of a step, so it is not profiled."""
    run_dir = tmp_path / "run"
    more = "max_steps: 40 profile { first_step: 25 steps: 4 }"
    config = write_config(tmp_path, digits_config(more, data=digits_data("validation_fraction: 0.1")))
    assert train(config, run_dir).status == DONE
    expect_whole(run_dir, 25, 2, 1)


def test_a_run_that_goes_on(tmp_path):
    """Checks that `profile` finds the new profile although the resumed run is at an earlier step than the newest
    profile in the run folder, which has the step 9000000."""
    run_dir = tmp_path / "run"
    config = config_in(tmp_path, "profile { first_step: 20 steps: 2 } checkpoint { every_epochs: 0 }")
    assert train(config, run_dir, *sets("max_steps=30")).status == DONE
    (run_dir / "profiles/20").rename(run_dir / "profiles/9000000")
    with Started(config, run_dir) as job:
        job.wait_for("step", 35)
        asked = Run(["profile", run_dir, "--json"])
        assert asked.status == DONE and json.loads(asked.out)["step"] > 30, asked
        assert job.stop()[0] == STOPPED


def test_a_first_profile_that_is_damaged(tmp_path):
    run_dir = tmp_path / "run"
    config = config_in(tmp_path)
    assert train(config, run_dir, *sets("max_steps=4", "profile.first_step=3", "profile.steps=2")).status == DONE
    (run_dir / "profiles/3/summary.json").write_text("{}")
    assert train(config, run_dir, *sets("max_steps=9", "profile.first_step=7", "profile.steps=2")).status == DONE
    expect_whole(run_dir, 7, 2, 1)
    (warning,) = [e["reason"] for e in events(run_dir, "warning") if "is not compared" in e["reason"]]
    assert "no summary of a profile" in warning


def test_settings_that_make_no_sense(tmp_path):
    for text, why in [
        ("profile { every: 10 }", "profile.every: needs profile.first_step"),
        ("profile { first_step: 1 steps: 10 every: 10 }", "profile.every: 10 is not more than profile.steps, 10"),
        ("profile { steps: 0 }", "profile.steps: 0 is less than 1"),
    ]:
        expect_error(Run(["config", config_in(tmp_path, text)]), USAGE, why)


def test_ranges_of_nvtx(tmp_path):
    """Checks that a tool that NVTX loads sees the ranges, nested as they are in a step."""
    names = tmp_path / "names"
    env = {"NVTX_INJECTION64_PATH": NVTX_NAMES, "NVTX_NAMES": str(names)}
    assert train(config_in(tmp_path, "max_steps: 3 graph: false"), tmp_path / "run", env=env).status == DONE
    depth, paths = [], set()
    for line in names.read_text().splitlines():
        if line == "pop":
            depth.pop()
        else:
            depth.append(line.removeprefix("push "))
            paths.add("/".join(depth))
    assert depth == []
    for step in (1, 2, 3):
        for path in ("rest/forward/0", "rest/forward/loss", "rest/backward", "rest/update"):
            assert f"ProfilerStep#{step}/{path}" in paths, (path, paths)
        assert any(path.startswith(f"ProfilerStep#{step}/") and path.endswith("/read") for path in paths), paths


@pytest.mark.all_tier("it needs HolisticTraceAnalysis, and reads a trace that other cases check")
@pytest.mark.skipif(importlib.util.find_spec("hta") is None, reason="HolisticTraceAnalysis is not installed")
def test_holistic_trace_analysis(profiled):
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=str(profiled / "profiles/25/traces"))
    assert sorted(analysis.t.traces) == [0, 1]
