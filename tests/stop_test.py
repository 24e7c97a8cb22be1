"""A run that is asked to stop, by a signal to any of its processes, ends after the same step on all ranks with its
state committed, and goes on as if it had not; one that is asked for a checkpoint makes it and trains on."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from harness import (
    CHECKPOINT,
    DIGITS,
    DONE,
    INTERRUPTED,
    LOCKSTEP,
    STOPPED,
    USAGE,
    Run,
    checkpoints,
    events,
    expect_error,
    faulty_model,
    losses_by_step,
    processes_with,
    skip_without_gpus,
    train,
    wait_until,
    write_config,
)

FAULT_AT = os.path.abspath(os.environ["FAULT_AT_SO"])
FAULTY = os.path.abspath(os.environ["FAULTY"])
LONG_S = 60  # for anything to happen that does


def config_in(folder, more="", model='name: "mlp" mlp { hidden: [24] dropout: 0.2 }'):
    return write_config(
        folder,
        f"""deterministic: true log {{ every_steps: 1 }} global_batch: 64 epochs: 100000
        data {{ train: "{DIGITS}" csv {{ scale: 0.0625 }} }} optimizer {{ type: ADAMW lr: 0.003 }}
        model {{ {model} }} checkpoint {{ every_epochs: 0 {more} }}""",
    )


class Started:
    """A job that trains until it is told otherwise."""

    def __init__(self, config, run_dir, ranks=None, program=LOCKSTEP, env=None):
        self.run_dir = run_dir
        command = [program] + (["-n", str(ranks)] if ranks else []) + ["train", config, "--set", f"run_dir={run_dir}"]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, **(env or {})),
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def wait_for(self, kind, count=1):
        """Until the log has so many lines of that event."""

        def there():
            assert self.process.poll() is None, self.process.communicate()
            log = self.run_dir / "log.jsonl"
            return log.exists() and log.read_text().count(f'{{"event":"{kind}",') >= count

        wait_until(there, LONG_S)

    def rank(self, number):
        """Its process."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if f"OMPI_COMM_WORLD_RANK={number}\0" not in (entry / "environ").read_text(errors="replace"):
                    continue
                if str(self.run_dir) in (entry / "cmdline").read_text(errors="replace"):
                    return int(entry.name)
            except OSError:  # no process, or one that has ended
                continue
        raise AssertionError(f"no rank {number}")

    def stop(self):
        """Asks it to, and waits for its end."""
        os.kill(self.process.pid, signal.SIGUSR2)
        return self.end()

    def end(self):
        out, err = self.process.communicate(timeout=LONG_S)
        wait_until(lambda: not processes_with(str(self.run_dir)), LONG_S)
        return self.process.returncode, out, err


def signals_in(pid, field):
    mask = re.search(rf"^{field}:\s*(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def expect_goes_on(tmp_path, config, run_dir, ranks, step):
    """From `step`, with the losses of a run that was not stopped."""
    whole = tmp_path / "whole"
    more = ["--set", f"max_steps={step + 20}"]
    for folder in (run_dir, whole):
        run = train(config, folder, *more, ranks=ranks)
        assert run.status == DONE, run
    assert [e["step"] for e in events(run_dir, "resume")] == [step]
    assert losses_by_step(run_dir) == losses_by_step(whole)
    weights = [(folder / "weights.safetensors").read_bytes() for folder in (run_dir, whole)]
    assert weights[0] == weights[1]


def expect_stopped(tmp_path, config, job, ranks, status):
    returned, out, err = job.end()
    assert returned == status, (returned, out, err)
    (stopped,) = events(job.run_dir, "stopped")
    step = stopped["step"]
    assert f"stopped after step {step} of " in out, (out, err)
    assert checkpoints(job.run_dir) == [step]
    assert max(losses_by_step(job.run_dir)) == step
    assert not (job.run_dir / "weights.safetensors").exists()
    expect_goes_on(tmp_path, config, job.run_dir, ranks, step)


@pytest.mark.parametrize(
    "ranks,target,number,status",
    [
        (None, None, signal.SIGUSR2, STOPPED),
        (None, None, signal.SIGTERM, STOPPED),
        (None, None, signal.SIGINT, INTERRUPTED),
        (2, None, signal.SIGUSR2, STOPPED),
        (2, 0, signal.SIGTERM, STOPPED),
        (2, 1, signal.SIGTERM, STOPPED),
        (2, 1, signal.SIGUSR2, STOPPED),
        (2, 1, signal.SIGINT, INTERRUPTED),
        (3, 2, signal.SIGUSR2, STOPPED),
    ],
)
def test_a_signal_stops_all_ranks_after_the_same_step(tmp_path, ranks, target, number, status):
    """`target`: a rank's process, or the one that the user started, which passes SIGUSR2 on."""
    skip_without_gpus(ranks)
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 7)
        os.kill(job.process.pid if target is None else job.rank(target), number)
        expect_stopped(tmp_path, config, job, ranks, status)


def test_a_signal_before_the_first_step(tmp_path):
    config = config_in(tmp_path)
    with Started(config, tmp_path / "run") as job:
        wait_until(lambda: signal.SIGUSR2 in signals_in(job.process.pid, "SigCgt"), LONG_S)
        os.kill(job.process.pid, signal.SIGUSR2)
        expect_stopped(tmp_path, config, job, None, STOPPED)


def test_a_second_interrupt_ends_the_process(tmp_path):
    """Where the first comes to nothing: the model never returns."""
    config = config_in(tmp_path, model=faulty_model(fault=7, at=5))
    with Started(config, tmp_path / "run", program=FAULTY) as job:
        job.wait_for("step", 5)
        pid = job.process.pid
        os.kill(pid, signal.SIGINT)
        wait_until(lambda: signal.SIGINT not in signals_in(pid, "ShdPnd") | signals_in(pid, "SigPnd"), LONG_S)
        assert job.process.poll() is None
        os.kill(pid, signal.SIGINT)
        assert job.end()[0] == -signal.SIGINT


def test_what_is_not_training_yet_ends_at_once(tmp_path):
    os.mkfifo(tmp_path / "never.csv")
    config = write_config(tmp_path, 'data { train: "never.csv" } model { name: "mlp" }')
    with Started(config, tmp_path / "run") as job:
        wait_until(lambda: signal.SIGUSR2 in signals_in(job.process.pid, "SigCgt"), LONG_S)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.end()[0] == -signal.SIGTERM


@pytest.mark.parametrize("ranks", [None, 2])
def test_a_checkpoint_on_demand(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "keep: 100")
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("step", 3)
        for count in (1, 2):
            run = Run(["checkpoint", job.run_dir])
            assert run.status == DONE, run
            newest = checkpoints(job.run_dir)[-1]
            assert run.out.strip() == f"{job.run_dir}/checkpoints/step-{newest:012}"
            assert len(checkpoints(job.run_dir)) >= count
        assert Run(["verify", job.run_dir]).status == DONE
        assert not (job.run_dir / "checkpoint.request").exists()
        assert job.stop()[0] == STOPPED
    # It trains on without further ones.
    made = [e["step"] for e in events(job.run_dir, "checkpoint")]
    assert made == checkpoints(job.run_dir) and len(made) <= 5, made
    expect_error(Run(["checkpoint", job.run_dir]), USAGE, f"{job.run_dir}: no job trains in it now")


def test_a_checkpoint_on_demand_that_cannot_be_written(tmp_path):
    run_dir = tmp_path / "run"
    env = {"LD_PRELOAD": FAULT_AT, "FAULT": "ENOSPC", "FAULT_AT": "3", "FAULT_PATH": f"{run_dir}/checkpoints/"}
    with Started(config_in(tmp_path), run_dir, env=env) as job:
        job.wait_for("step", 3)
        expect_error(Run(["checkpoint", run_dir]), CHECKPOINT, "there is no new checkpoint", "log.jsonl says why")
        assert "No space left" in events(run_dir, "checkpoint_failed")[0]["reason"]
        status, _, err = job.stop()
        assert status == CHECKPOINT and "No space left" in err.splitlines()[-1], err


@pytest.mark.parametrize("ranks", [None, 2])
def test_by_the_clock(tmp_path, ranks):
    skip_without_gpus(ranks)
    config = config_in(tmp_path, "every_minutes: 0.001")
    with Started(config, tmp_path / "run", ranks) as job:
        job.wait_for("checkpoint", 3)
        assert job.stop()[0] == STOPPED
    (stopped,) = events(job.run_dir, "stopped")
    assert checkpoints(job.run_dir)[-1] == stopped["step"]
