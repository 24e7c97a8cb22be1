"""Compares the readings of real GPUs in a run's log and in `lockstep watch` with nvidia-smi's readings at the same
time."""

import csv
import io
import re
import shutil
import subprocess

import pytest

from harness import DONE, STOPPED, Run, Started, digits_config, events, log_text, write_config

MIB = 1 << 20
QUERY = {
    "index": int,
    "uuid": str,
    "name": str,
    "memory.used": float,
    "memory.total": float,
    "power.draw.instant": float,
    "power.limit": float,
    "temperature.gpu": float,
    "clocks.sm": float,
    "clocks.max.sm": float,
    "clocks.mem": float,
}


def smi(*words):
    """Returns the rows of the CSV output of nvidia-smi with the arguments `words`."""
    done = subprocess.run(["nvidia-smi", *words, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(done.stdout)) if row]


def gpus():
    """Returns nvidia-smi's current readings of each GPU; None stands for a reading that nvidia-smi does not report."""
    found = []
    for row in smi("--query-gpu=" + ",".join(QUERY)):
        values = {}
        for (name, kind), cell in zip(QUERY.items(), row, strict=True):
            values[name] = None if cell.startswith("[") else kind(cell)
        found.append(values)
    return found


pytestmark = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi"], capture_output=True).returncode != 0,
    reason="needs a GPU; this machine has none",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains on the machine's last GPU. Returns the run's machine lines (at least two), the values that nvidia-smi
    reported about this GPU meanwhile, and the output of `lockstep watch`."""
    folder = tmp_path_factory.mktemp("run")
    uuid = gpus()[-1]["uuid"]
    model = 'name: "mlp" mlp { hidden: [4096, 4096, 4096] }'
    config = write_config(folder, digits_config(model=model, log_every=50))
    words = ["--set", "device=CUDA", "--set", "global_batch=1024", "--set", "observe.readings_every_s=0.5"]
    seen, apps = [], []
    with Started(config, folder / "run", words=words, env={"CUDA_VISIBLE_DEVICES": uuid}) as job:

        def has_two_lines():
            if '{"event":"step",' in log_text(folder / "run"):
                seen.append(gpus()[-1])
                apps.append(smi("--query-compute-apps=gpu_uuid,pid,used_memory"))
            return log_text(folder / "run").count('{"event":"machine",') >= 2

        job.wait_until(has_two_lines)
        watch = Run(["watch", "--once"])
        pid = job.process.pid
        assert job.stop()[0] == STOPPED
    lines = events(folder / "run", "machine")
    return {"lines": lines, "seen": seen, "apps": apps, "pid": pid, "uuid": uuid, "watch": watch}


def within(value, seen, share, absolute):
    """Checks that `value` lies between the least and the greatest number in `seen`, or outside by at most `share` times
    the greatest number plus `absolute`."""
    seen = [number for number in seen if number is not None]
    slack = share * max(seen) + absolute
    assert min(seen) - slack <= value <= max(seen) + slack, (value, seen)


def test_the_run_reads_its_own_gpu_alone(run):
    for line in run["lines"]:
        (gpu,) = line["gpus"]
        assert (gpu["index"], gpu["name"]) == (run["seen"][0]["index"], run["seen"][0]["name"])
        assert 0 <= gpu["use"] <= 1
        assert gpu.get("xid_error", 0) == 0
    # The GPU must be busy when the last reading is taken.
    assert run["lines"][-1]["gpus"][0]["use"] > 0


@pytest.mark.parametrize(
    "field, column, unit, share, absolute",
    [
        ("memory_used_bytes", "memory.used", MIB, 0.02, 128 * MIB),
        ("memory_total_bytes", "memory.total", MIB, 0, MIB),
        # The power may vary by 30 % from one moment to the next.
        ("power_w", "power.draw.instant", 1, 0.3, 20),
        ("power_limit_w", "power.limit", 1, 0, 0.1),
        ("temperature_c", "temperature.gpu", 1, 0, 5),
        ("sm_clock_mhz", "clocks.sm", 1, 0.2, 0),
        ("sm_clock_limit_mhz", "clocks.max.sm", 1, 0, 0),
        ("memory_clock_mhz", "clocks.mem", 1, 0.1, 0),
    ],
)
def test_the_log_agrees_with_nvidia_smi(run, field, column, unit, share, absolute):
    seen = [row[column] for row in run["seen"]]
    if all(value is None for value in seen):
        pytest.skip(f"nvidia-smi does not tell {column} here")
    # Only the run's last reading is compared, because the first one may be older than all readings of nvidia-smi.
    within(run["lines"][-1]["gpus"][0][field], [value and value * unit for value in seen], share, absolute)


def test_energy_is_power_over_time(run):
    """Checks that the GPU used more than 10 W times 10 s of energy between two machine lines, which are at least 10 s
    apart."""
    first, second = (line["gpus"][0] for line in run["lines"][:2])
    if "energy_j" not in first:
        pytest.skip("this GPU does not count it")
    assert second["energy_j"] - first["energy_j"] > 10 * 10, "less than 10 W"


def test_the_memory_of_the_process(run):
    """Checks the memory of the run's process. In a container the driver may know processes by other ids. Then neither
    nvidia-smi nor the run can report this memory."""
    own = [float(mib) * MIB for rows in run["apps"] for uuid, pid, mib in rows
           if uuid == run["uuid"] and int(pid) == run["pid"] and not mib.startswith("[")]
    told = run["lines"][-1]["gpus"][0].get("process_memory_bytes")
    if not own:
        assert told is None
        pytest.skip("the driver does not know this container's processes")
    within(told, own, 0.02, 64 * MIB)


def test_watch_shows_all_gpus(run):
    watch = run["watch"]
    assert (watch.status, watch.err) == (DONE, ""), watch
    (version,) = {row[0] for row in smi("--query-gpu=driver_version")}
    assert watch.out.startswith(f"NVIDIA driver {version}\n")
    for gpu in gpus():
        assert f"GPU {gpu['index']}  {gpu['name']}\n" in watch.out
    assert re.search(r"\n  PCIe \S+ .B/s in, \S+ .B/s out", watch.out), watch


def test_doctor_names_no_gpu_that_can_be_used(tmp_path):
    capabilities = [float(row[0]) for row in smi("--query-gpu=compute_cap")]
    out = Run(["doctor", "--folder", tmp_path], timeout=300).out
    assert out.count("its compute capability is") == sum(c < 7.5 for c in capabilities), out
    assert "no driver that answers" not in out
