"""Measures the speedups that tuning guides promise for settings: guide_claims.py LOCKSTEP [--only precision,cores,...]

For each setting the script times steps with the setting and without it (`lockstep bench step`), in separate processes,
one after the other, on this machine. It prints a line of JSON for each setting, with the ratio of the samples/s with
the setting to those without. docs/figures.md has the results.
"""

import argparse
import json
import os
import pathlib
import subprocess

PEERS = pathlib.Path(__file__).parent.parent / "gpu" / "peers"


def measured(program, model, *settings, steps=30, warmup=10):
    words = [word for setting in settings for word in ("--set", setting)]
    command = [program, "bench", "step", str(PEERS / f"{model}.pbtxt"), "--json", *words]
    command += ["--steps", str(steps), "--warmup", str(warmup)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return {"error": "it took more than 300 s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1]}
    line = json.loads(done.stdout)
    return {key: line[key] for key in ("samples_per_s", "step_ms", "peak_gib")}


def compare(program, claim, model, before, after, before_options=None, after_options=None):
    first = measured(program, model, *before, **(before_options or {}))
    second = measured(program, model, *after, **(after_options or {}))
    line = {"claim": claim, "model": model, "before": before, "after": after, "of_before": first, "of_after": second}
    if "error" not in first and "error" not in second:
        line["ratio"] = round(second["samples_per_s"] / first["samples_per_s"], 2)
        if first["peak_gib"] > 0:
            line["memory"] = round(second["peak_gib"] / first["peak_gib"], 2)
    print(json.dumps(line), flush=True)


def precision(program):
    for model in ("gpt2", "resnet50", "vit_b_16", "lstm", "mlp"):
        for after in ("BF16", "FP16"):
            compare(program, "precision", model, ["precision=FP32"], [f"precision={after}"])


def cores(program):
    """Times steps on all CPU cores of this machine, and on its GPU in FP32 and in BF16."""
    few = {"steps": 3, "warmup": 1}
    for model in ("lstm", "tinygpt", "mlp", "resnet18"):
        for after in ("FP32", "BF16"):
            compare(program, f"cores: {os.cpu_count()}", model, ["device=CPU"], [f"precision={after}"], few)


def graph(program):
    for model in ("mlp", "lstm", "gpt2", "resnet50"):
        compare(program, "graph", model, ["precision=BF16", "graph=false"], ["precision=BF16"])


def checkpointing(program):
    for model in ("gpt2", "resnet50"):
        after = ["precision=BF16", "model.activation_checkpointing=true"]
        compare(program, "checkpointing", model, ["precision=BF16"], after)


def accumulation(program):
    for model in ("gpt2", "resnet50"):
        before = ["precision=BF16", "global_batch=128"]
        compare(program, "accumulation", model, before, [*before, "accumulation=8"])


def batch(program):
    for size in (8, 32, 128, 512):
        before = ["precision=BF16", "global_batch=256"]
        compare(program, "batch", "resnet50", before, ["precision=BF16", f"global_batch={size}"])


CLAIMS = {each.__name__: each for each in (precision, cores, graph, checkpointing, accumulation, batch)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--only", default=",".join(CLAIMS), help="claims, with commas between them")
    arguments = parser.parse_args()
    for name in arguments.only.split(","):
        CLAIMS[name](arguments.program)


if __name__ == "__main__":
    main()
