"""Tests the readings of GPUs and host: in a run's log, in its live line, in `lockstep watch` and in `lockstep doctor`.

A stand-in (tests/faults/nvml.c) replaces the driver's library, and its GPUs have known figures.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import termios

import pytest

from harness import (
    DONE,
    LOCKSTEP,
    LONG_S,
    STOPPED,
    Run,
    Started,
    digits_config,
    events,
    in_mount_namespace,
    log_text,
    path_of,
    step_losses,
    train,
    wait_until,
    write_config,
)
from terminal import Terminal

BESIDE_GPUS = path_of("BESIDE_GPUS")
DRIVER, OLD_DRIVER = (pathlib.Path(path_of(name)).parent for name in ("DRIVER_SO", "OLD_DRIVER_SO"))
GIB = 1 << 30
OFTEN = "observe.readings_every_s=0.02"


def driver(folder=DRIVER, **options):
    """Returns the environment variables that select the driver's library in `folder`; `options` become the stand-in's
    own variables."""
    return {"LD_LIBRARY_PATH": str(folder)} | {f"NVML_{name.upper()}": str(value) for name, value in options.items()}


def uuids(*numbers):
    return ",".join(f"GPU-00000000-0000-0000-0000-{number:012}" for number in numbers)


class Training:
    """Runs a training that computes on the CPU and reads the figures of the stand-in's GPUs. The training goes on until
    it is told to stop."""

    def __init__(self, tmp_path, gpus, env, *assignments):
        self.run_dir = tmp_path / "run"
        config = write_config(tmp_path, digits_config())
        words = [BESIDE_GPUS, config, gpus, f"run_dir={self.run_dir}", *(assignments or [OFTEN])]
        self.process = subprocess.Popen(
            words, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait_until(self, condition):
        def holds():
            assert self.process.poll() is None, self.process.stderr.read()
            return condition()

        wait_until(holds)

    def has(self, kind, count=1):
        return log_text(self.run_dir).count(f'{{"event":"{kind}",') >= count

    def stop(self):
        (self.run_dir / "STOP").touch()
        _, err = self.process.communicate(timeout=LONG_S)
        assert (self.process.returncode, err) == (STOPPED, b"")


def reading_of(tmp_path, gpus, env):
    """Runs a training, and returns the first `machine` line of its log."""
    with Training(tmp_path, gpus, env) as training:
        training.wait_until(lambda: training.has("machine"))
        training.stop()
    return events(training.run_dir, "machine")[0]


def figures(number):
    """Returns the fields of a reading of the stand-in's GPU `number`."""
    return {
        "index": number,
        "name": "Stand-in GPU",
        "use": (90 + number) / 100,
        "memory_use": (40 + number) / 100,
        "memory_used_bytes": (71 + number) * GIB,
        "memory_total_bytes": 80 * GIB,
        "power_w": 684 + number,
        "power_limit_w": 700,
        "energy_j": 5000,
        "temperature_c": 64 + number,
        "sm_clock_mhz": 1755 + number,
        "sm_clock_limit_mhz": 1980,
        "memory_clock_mhz": 2619 + number,
        "memory_clock_limit_mhz": 2700,
        "throttled_by": [],
        "xid_error": 0,
        "pcie_sent_bytes_per_s": 3e8,
        "pcie_received_bytes_per_s": 1.5e9,
    }


def test_a_run_logs_its_gpus(tmp_path):
    """Checks that a reading has only the GPUs of the run, 0 and 2 of three, and the memory of the run's process only
    for the process's own GPU 0."""
    line = reading_of(tmp_path, uuids(0, 2), driver(gpus=3, throttle=0x44, xid=79))
    first, second = line["gpus"]
    # The stand-in's NVLink counter grows by 1 GiB between two readings.
    assert first.pop("nvlink_sent_bytes_per_s") > 0
    assert first == figures(0) | {
        "process_memory_bytes": 60 * GIB,
        "throttled_by": ["power limit", "heat"],
        "xid_error": 79,
    }
    assert second == figures(2) | {"throttled_by": ["power limit", "heat"]}


def test_a_run_logs_its_host(tmp_path):
    """Checks the reading of the host, and that a run on CPUs does not call the GPU driver's library."""
    calls = tmp_path / "calls"
    with Started(write_config(tmp_path, digits_config()), tmp_path / "run", words=["--set", OFTEN],
                 env=driver(calls=calls)) as job:
        job.wait_for("machine")
        memory = pathlib.Path(f"/proc/{job.process.pid}/status").read_text()
        assert job.stop()[0] == STOPPED
    line = events(tmp_path / "run", "machine")[0]
    assert line["gpus"] == []
    assert line["host"] == os.uname().nodename
    assert line["cores"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert 0 < line["cpu_use"] <= 1
    assert 0 < line["memory_used_bytes"] < line["memory_total_bytes"] <= os.sysconf("SC_PHYS_PAGES") * 4096
    resident, most = (int(re.search(rf"{name}:\s+(\d+) kB", memory)[1]) << 10 for name in ("VmRSS", "VmHWM"))
    assert resident / 2 < line["process_memory_bytes"] <= most + (64 << 20)
    assert not calls.exists()


def test_an_old_driver(tmp_path):
    """Checks that a reading from an old driver, which lacks newer functions, has all other fields."""
    line = reading_of(tmp_path, uuids(1), driver(OLD_DRIVER))
    late = {"energy_j", "xid_error"}
    expected = {name: value for name, value in figures(1).items() if name not in late}
    # The old driver's figure of used memory includes the 1 GiB that the driver reserves.
    assert line["gpus"] == [expected | {"memory_used_bytes": 73 * GIB}]


@pytest.mark.parametrize(
    "functions, fields",
    [
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetMemoryInfo_v2,nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        (
            "nvmlEventSetCreate,nvmlDeviceGetPcieThroughput",
            {"xid_error", "pcie_sent_bytes_per_s", "pcie_received_bytes_per_s"},
        ),
        ("all", set(figures(1)) - {"index", "name"}),
    ],
)
@pytest.mark.all_tier(
    "each of these calls fails in the same way as all together do",
    unless=lambda functions: functions == "all",
)
def test_errors_leave_fields_out(tmp_path, functions, fields):
    line = reading_of(tmp_path, uuids(1), driver(fails=functions))
    expected = {name: value for name, value in figures(1).items() if name not in fields}
    if functions == "all":
        expected["name"] = ""
    assert line["gpus"] == [expected]


def test_a_driver_that_does_not_answer(tmp_path):
    assert reading_of(tmp_path, uuids(1), driver(init=18))["gpus"] == []


def test_a_slow_driver(tmp_path):
    """Checks that steps go on while the driver answers slowly, and that the run has the losses and the events of a run
    without readings."""
    calls = tmp_path / "calls"
    with Training(tmp_path, uuids(0, 1), driver(delay_ms=200, calls=calls)) as training:
        training.wait_until(calls.exists)
        made = log_text(training.run_dir).count('"step"')
        training.wait_until(lambda: training.has("step", made + 200))
        training.stop()
    config = tmp_path / "config.pbtxt"
    slow = [line for line in events(training.run_dir) if line["event"] != "machine"]
    steps = [line["step"] for line in slow if line["event"] == "step"]
    assert steps == [*range(1, len(steps) + 1)]
    run = train(config, tmp_path / "other", "--set", "observe.readings_every_s=0", "--set", f"max_steps={len(steps)}")
    assert run.status == DONE, run
    assert step_losses(training.run_dir) == step_losses(tmp_path / "other")
    quiet = [line["event"] for line in events(tmp_path / "other")]
    assert "machine" not in quiet
    # Only the first events, as many as there are steps, are compared, because the last events differ: one of the runs
    # was stopped, and the other was not.
    common, slow_common = (
        [kind for kind in kinds if kind in ("start", "step", "epoch")][: len(steps)]
        for kinds in (quiet, [line["event"] for line in slow])
    )
    assert slow_common == common


def test_the_live_line(tmp_path):
    words = [BESIDE_GPUS, write_config(tmp_path, digits_config()), uuids(0, 1), f"run_dir={tmp_path}/run", OFTEN]
    with Terminal(words, driver()) as terminal:
        terminal.wait_for(r"samples/s  \S+ left  2 GPUs 90 to 91 %  72 of 80 GiB  685 W  65 C\033\[K")
        terminal.process.kill()


def table(env):
    run = Run(["watch", "--once"], env=env)
    assert (run.status, run.err) == (DONE, ""), run
    return run.out


def test_watch_once():
    out = table(driver(throttle=0x20, xid=48))
    first, host, *_ = out.splitlines()
    assert first == "NVIDIA driver 580.95.05"
    assert host == f"host {os.uname().nodename}"
    gpu = out[out.index("GPU 1") :]
    assert "GPU 0  Stand-in GPU\n" in out and "  XID error 48: " in out
    for part in (
        "GPU 1  Stand-in GPU\n  use     [##################..]  91 %\n",
        "  memory  [##################..]  90 %   72 of 80 GiB\n",
        "  685 of 700 W   65 C   SM 1756 of 1980 MHz   memory 2620 of 2700 MHz\n",
        "  PCIe 1.5 GB/s in, 300 MB/s out\n",
        "  clocks kept down by: heat\n",
    ):
        assert part in gpu, out
    # The stand-in reports two processes: the test's own process, and the `watch` command, which has ended since.
    assert re.search(rf"  pid {os.getpid()}   \S+   \S", gpu), out
    assert re.search(r"  pid \d+   \S+   61.0 GiB   \S*lockstep watch --once\n", gpu), out


def test_watch_many_gpus():
    out = table(driver(gpus=16))
    assert [line for line in out.splitlines() if line.startswith("GPU ")] == [f"GPU {i}  Stand-in GPU" for i in range(16)]


def test_watch_without_a_driver(tmp_path):
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a driver")
    first, *host = table({}).splitlines()
    assert first == "this machine has no NVIDIA driver"
    assert [line[:7] for line in host] == ["host " + os.uname().nodename[:2], "  CPU  ", "  memor"]


def test_watch_with_a_broken_driver():
    first, *host = table(driver(init=18)).splitlines()
    assert first == "the NVIDIA driver does not answer: Driver/library version mismatch: see nvidia-smi"
    assert len(host) == 3


@pytest.mark.parametrize("way", ["q", "ctrl-c", "SIGTERM", "SIGHUP"])
@pytest.mark.all_tier(
    "other keys and signals give the terminal back in the same way",
    unless=lambda way: way in ("q", "SIGTERM"),
)
def test_watch_on_a_terminal(way):
    """Checks that `watch` redraws the screen repeatedly, and restores it whatever ends the program."""
    with Terminal([LOCKSTEP, "watch"], driver()) as terminal:
        terminal.wait_for(r"(?s)(\033\[H.*GPU 1  Stand-in GPU.*){2}\033\[J")
        # Ctrl-Z is switched off: it would suspend the program while the alternate screen is shown.
        assert termios.tcgetattr(terminal.slave)[6][termios.VSUSP] == b"\0"
        if way == "q":
            terminal.type(b"q")
        elif way == "ctrl-c":
            terminal.type(b"\x03")
        else:
            terminal.process.send_signal(getattr(signal, way))
        assert terminal.end() == DONE
        assert terminal.text.startswith("\033[?1049h\033[?25l\033[?7l")
        assert terminal.text.endswith("\033[?7h\033[?25h\033[?1049l")
        assert termios.tcgetattr(terminal.slave) == terminal.before


def test_watch_with_a_slow_driver(tmp_path):
    """Checks that keys work before the driver has answered for the first time."""
    with Terminal([LOCKSTEP, "watch"], driver(delay_ms=200, calls=tmp_path / "calls")) as terminal:
        wait_until((tmp_path / "calls").exists)
        terminal.wait_for(r"reading; q ends[^\n]*\033\[J")
        terminal.type(b"q")
        assert terminal.end() == DONE
    assert "GPU" not in terminal.text
    assert terminal.text.count("reading; q ends") == 1


def doctor(**options):
    run = Run(["doctor", "--device", "cpu", "--json"], **options)
    found = [json.loads(line) for line in run.out.split("\n")[:-1]]
    return [finding for finding in found if finding["check"] == "other gpu"]


def test_doctor_names_a_gpu_that_is_too_old():
    (finding,) = doctor(env=driver(capability="7.0"))
    assert finding["state"] == "warn"
    assert finding["figure"] == "GPU 0 (Stand-in GPU) cannot be used: its compute capability is 7.0"
    assert finding["advice"].endswith("leave it out of CUDA_VISIBLE_DEVICES")
    assert doctor(env=driver(capability="7.5")) == []


def test_doctor_names_gpus_of_other_makers(tmp_path):
    script = "mount -t tmpfs tmpfs /sys/bus/pci/devices\n"
    for slot, vendor in (("0000:03:00.0", "0x1002"), ("0000:00:02.0", "0x8086"), ("0000:09:00.0", "0x1a03")):
        folder = f"/sys/bus/pci/devices/{slot}"
        files = (("class", "0x030000"), ("vendor", vendor), ("device", "0x1"))
        script += f"mkdir {folder}\n" + "".join(f"echo {text} > {folder}/{name}\n" for name, text in files)
    launcher = in_mount_namespace(tmp_path, script)
    run = Run(["doctor", "--device", "cpu", "--folder", tmp_path], launcher=launcher)
    lines = [line for line in run.out.splitlines() if " other gpu " in line]
    why = "cannot be used: Lockstep computes on NVIDIA GPUs of compute capability 7.5 or higher: training is on the CPU"
    assert lines == [
        f"warn  other gpu     Intel 8086:0001 at 0000:00:02.0 {why}",
        f"warn  other gpu     AMD 1002:0001 at 0000:03:00.0 {why}",
    ], run
