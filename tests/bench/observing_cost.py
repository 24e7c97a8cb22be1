#!/usr/bin/env python3
"""Measures how much slower a run is when it is observed. The same training runs in turns in a program without
observation (or with all sinks switched off) and in a program with all sinks switched on:

    observing_cost.py WITHOUT WITH CONFIG [--rounds 20] [--ranks 1] [--set NAME=VALUE ...] [--only-sinks]

Both programs, WITHOUT and WITH, train CONFIG in a new folder. WITH also writes to TensorBoard and to Prometheus by port
and by file, and has an alert command and readings of the machine. Prints a JSON line: the median samples/s of both
programs over the rounds; for the seconds per sample the median ratio (WITH to WITHOUT), and the upper 95 % bound of the
mean ratio (Student's t on the logarithms); and for the CPU seconds of the processes the median ratio. A ratio above 1
means that WITH is slower. The first round is not counted, because convolution plans are searched in it. With
--only-sinks, WITHOUT must be a program that has the config field for readings of the machine; the script then switches
off the readings of WITHOUT.
"""

import argparse
import json
import math
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile

T_95 = {5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 15: 2.131, 19: 2.093, 20: 2.086}


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


def sinks(folder):
    return {
        "observe.tensorboard": "true",
        "observe.prometheus_port": free_port(),
        "observe.prometheus_file": folder / "lockstep.prom",
        "observe.on_alert": "true",
        "observe.readings_every_s": 1,
    }


def train(program, config, ranks, settings):
    """Trains CONFIG once. Returns the seconds of training per sample, and the CPU seconds of all processes of the
    run."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        settings = settings(folder) | {"run_dir": folder / "run"}
        words = [program, *(["-n", ranks] if ranks > 1 else []), "train", config]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"{words}: status {done.returncode}\n{done.stderr[-2000:]}")
        last = json.loads((folder / "run" / "log.jsonl").read_text().split("\n")[-2])
        return 1 / last["samples_per_s"], sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("without")
    parser.add_argument("observing", metavar="with")
    parser.add_argument("config")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--only-sinks", action="store_true")
    options = parser.parse_args()
    given = dict(setting.split("=", 1) for setting in options.set)
    off = {"observe.readings_every_s": 0} if options.only_sinks else {}
    sides = {
        "without": (options.without, lambda folder: given | off),
        "with": (options.observing, lambda folder: given | sinks(folder)),
    }
    rounds = []
    for number in range(options.rounds + 1):
        # In even rounds WITH runs first, in odd rounds WITHOUT.
        found = {
            side: train(sides[side][0], options.config, options.ranks, sides[side][1])
            for side in (("without", "with") if number % 2 else ("with", "without"))
        }
        if number > 0:
            rounds.append(found)
    ratios = [found["with"][0] / found["without"][0] for found in rounds]
    logarithms = [math.log(ratio) for ratio in ratios]
    t = T_95.get(len(rounds) - 1, 2.0 if len(rounds) > 21 else 2.6)
    error = statistics.stdev(logarithms) / math.sqrt(len(rounds))
    print(
        json.dumps(
            {
                "rounds": len(rounds),
                "ratio_median": round(statistics.median(ratios), 5),
                "ratio_upper_95": round(math.exp(statistics.mean(logarithms) + t * error), 5),
                "cpu_ratio_median": round(
                    statistics.median(found["with"][1] / found["without"][1] for found in rounds), 4
                ),
                "ratios": [round(ratio, 4) for ratio in ratios],
                "samples_per_s": {
                    side: round(1 / statistics.median(found[side][0] for found in rounds)) for side in ("without", "with")
                },
            }
        ),
        flush=True,
    )


main()
