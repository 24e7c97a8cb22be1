#!/usr/bin/env python3
"""Measures how long `lockstep watch --page` takes to show many long runs, from the command to the last drawn pixel:

    LOCKSTEP=bazel-bin/launch/lockstep .venv/bin/python tests/bench/page_draw.py [--runs 20] [--lines 50000] [--rounds 5]

Writes --runs logs with --lines step lines each (by default 20 times 50,000, which is a million), and with as many lines
of evaluations, lost seconds and machine readings as such runs have. Starts `lockstep watch FOLDER --page`, and opens
the page in a headless Chromium on a screen of 1440 by 900. Prints a JSON line: the seconds from the command until the
URL is printed, by which time all logs have been read; the megabytes of the page; the least and the median milliseconds
from the page's request to the frame in which all charts are drawn; and the server's memory in megabytes.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from browser import DESK, Browser
from harness import LOCKSTEP

BEGAN = 1764000000
CAUSES = ("reading", "decoding", "copying", "launching", "communication", "slow_rank", "cores", "evaluation",
          "checkpoints", "memory", "restarts", "throttling", "other")  # fmt: skip


def write_log(folder, seed, lines, step_s=0.1):
    """Writes the config and the log of a run of `lines` steps, each of which has a step line."""
    noise = random.Random(seed)
    folder.mkdir()
    config = f"global_batch: 64 epochs: 10 optimizer {{ type: ADAMW lr: {0.001 * (1 + seed)} }}"
    (folder / "config.pbtxt").write_text(config)
    with open(folder / "log.jsonl", "w") as log:
        log.write(json.dumps({"event": "start", "time": BEGAN, "version": "0.1.0", "world_size": 8, "device": "cuda",
                              "steps": lines, "samples": 64000}) + "\n")  # fmt: skip
        for step in range(1, lines + 1):
            now = BEGAN + step_s * step
            loss = 3 * math.exp(-3 * step / lines) + 0.3 * noise.random()
            log.write(
                f'{{"event":"step","time":{now:.3f},"step":{step},"epoch":{1 + step // 1000},"loss":{loss!r},'
                f'"lr":{0.001 * (1 - step / lines)!r},"samples_per_s":{6400 + 100 * noise.random():.0f}.0,"data_wait":0.001,'
                f'"loader_threads":4,"grad_norm":{1 + noise.random()!r},"left_s":{step_s * (lines - step):.1f}}}\n'
            )
            if step % 50 == 0:
                lost = {cause: step_s * step * 0.01 * noise.random() for cause in CAUSES}
                line = {"event": "seconds", "time": now, "step": step, "steps": step, "wall_s": step_s * step,
                        "ideal_s": step_s * step - sum(lost.values()), "lost_s": lost, "verdict": "", "remedy": "",
                        "findings": []}  # fmt: skip
                log.write(json.dumps(line) + "\n")
            if step % 100 == 0:
                gpus = [{"index": i, "name": "NVIDIA H100 80GB HBM3", "use": 0.97, "memory_used_bytes": 5 << 30,
                         "memory_total_bytes": 80 << 30, "power_w": 600 + i, "temperature_c": 60,
                         "sm_clock_mhz": 1755} for i in range(8)]  # fmt: skip
                log.write(json.dumps({"event": "machine", "time": now, "host": "node1", "cpu_use": 0.5, "cores": 96,
                                      "memory_used_bytes": 9 << 30, "memory_total_bytes": 900 << 30, "gpus": gpus}) + "\n")  # fmt: skip
            if step % 1000 == 0:
                log.write(json.dumps({"event": "eval", "time": now, "step": step, "epoch": step // 1000, "val_loss": loss,
                                      "val_accuracy": 0.9}) + "\n")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture", help="PNG file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        runs = pathlib.Path(folder) / "runs"
        runs.mkdir()
        for seed in range(options.runs):
            write_log(runs / f"run-{seed:02}", seed, options.lines)
        browser.show(DESK)
        log_bytes = sum(path.stat().st_size for path in runs.glob("*/log.jsonl"))
        begin = time.monotonic()
        server = subprocess.Popen([LOCKSTEP, "watch", runs, "--page", "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[0]
            read_s = time.monotonic() - begin
            page_bytes = len(urllib.request.urlopen(url).read())
            drawn_ms = [browser.open(url) for _ in range(options.rounds)]
            if options.picture:
                browser.picture(options.picture)
            status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
            memory_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        finally:
            server.terminate()
            server.wait()
        print(json.dumps({
            "runs": options.runs, "step_lines": options.runs * options.lines, "log_mb": round(log_bytes / 1e6, 1),
            "read_s": round(read_s, 3), "page_mb": round(page_bytes / 1e6, 2), "drawn_ms_least": round(min(drawn_ms)),
            "drawn_ms_median": round(statistics.median(drawn_ms)), "server_mb": round(memory_kib / 1e3),
        }))  # fmt: skip


main()
