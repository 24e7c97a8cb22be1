"""Counts how many models lockstep.export can export and Lockstep can train: the smallest model of every timm module, at
the smallest image size that it takes, and 20 Hugging Face architectures with tiny configs.

    python export_breadth.py LOCKSTEP [PATTERN ...] [--jobs 1] [--seconds 600] [--operations FILE]

LOCKSTEP is the program, such as ./lockstep. A model counts as `ok` if it can be exported with two samples, and the
exported file then gives the same results as the module in eager mode for three other samples, from the same weights and
the same seed, in fp32 on one CPU thread. Dropout is on, and all programs draw the same random numbers. The results are
compared in two ways:

- with tests/lsm_executor.py, which runs the exported file in PyTorch: the output, all gradients, all buffers, and the
  output in evaluation mode must agree within 1e-5 of the largest element of each tensor;
- with `lockstep train`: the loss of a step, the loss of the evaluation after the step, the gradients of all parameters
  as one vector, and the running statistics of normalisation layers as another vector must agree within CLOSE, or within
  five times the change that eager mode shows when the last bit of every weight is changed. The second limit is for
  models with BatchNorm over three values, which magnifies rounding errors. Lockstep's rounding errors differ from
  PyTorch's, because Lockstep adds numbers in another order.

Prints one line for each model, and then the counts. The exit status is 0 if at least 95 % are ok. A line with `refused`
has the exporter's message. A line with `eager` is about a model that does not train even in eager mode; such models are
not counted. Each model runs in its own process. export_breadth_models.txt lists timm's models; --list writes this file
again, which takes some minutes.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parent
MODELS = FOLDER / "export_breadth_models.txt"
SIZES = (32, 64, 96, 128, 160, 192, 224, 240, 256, 288, 384)
TOLERANCE = 1e-5
CLOSE = 1e-5
SEED = 7
# The seed of the random number generators of rank 0 in `lockstep train` (Fit::Fit() in trainer/run/fit.cc).
SEED_OF_RANK = SEED ^ 0x9E3779B97F4A7C15
LR = 4096.0  # a learning rate so large that rounding w - LR * gradient loses little of the gradient
NO_LR = 1e-30  # a learning rate so small that a step leaves the weights unchanged

sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent.parent / "python")]

_BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_LLAMA = _BERT | {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
HUGGING_FACE = {
    "bert": _BERT,
    "roberta": _BERT,
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "electra": _BERT | {"embedding_size": 32},
    "deberta-v2": _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "modernbert": _BERT | {"num_hidden_layers": 4, "pad_token_id": 0, "vocab_size": 500},
    "albert": _BERT | {"embedding_size": 16},
    "mpnet": _BERT,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "pad_token_id": 0},
    "opt": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "gpt_neox": _BERT | {"pad_token_id": 0},
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma": _LLAMA,
    "mistral": _LLAMA,
    "phi": _BERT | {"pad_token_id": 0},
    "t5": {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
    "vit": _BERT | {"image_size": 32, "patch_size": 8},
    "swin": {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "image_size": 32, "patch_size": 2, "window_size": 4},
}


class NoEager(Exception):
    """Says that the model does not train in eager mode."""


def mean_of_tokens(model):
    """Wraps a model that has an output for each token. The returned module has one output for each sample: the mean
    over its tokens."""
    import torch

    class MeanOfTokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits.mean(1)

    return MeanOfTokens()


def make(source):
    """Returns the module that `source` names, and example inputs of two samples."""
    import torch

    from lockstep.export import sources

    kind, name = source.split(":")
    if kind == "hf":
        import transformers

        config = transformers.AutoConfig.for_model(name, **HUGGING_FACE[name])
        if name == "t5":
            tokens = torch.randint(2, 500, (2, 16))
            model = mean_of_tokens(transformers.T5ForTokenClassification(config))
            return model, {"input_ids": tokens, "attention_mask": tokens > 0}
        return sources.hugging_face_model(config, sources.Options(length=16))

    reason = ""
    for size in SIZES:
        try:
            model, image = sources.make(source, sources.Options(size=size, classes=10))
            model.train()
            model(image)
            return model, image
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    raise NoEager(reason)


def other_samples(value):
    import torch

    if value.is_floating_point():
        return torch.randn(3, *value.shape[1:])
    if value.dtype == torch.bool or (value == 1).all():  # an attention mask; the last sample gets three tokens less
        mask = torch.ones(3, *value.shape[1:], dtype=value.dtype)
        mask[2, -3:] = 0
        return mask
    return torch.randint(2, 500, (3, *value.shape[1:]))


def distance(ours, eager):
    """Returns the largest difference between elements of `ours` and `eager`, divided by the largest element of
    `eager`."""
    if ours is None or eager is None:
        return 0.0 if ours is eager else float("inf")
    if ours.shape != eager.shape:
        return float("inf")
    scale = eager.double().abs().max().item() if eager.numel() else 0
    return (ours.double() - eager.double()).abs().max().item() / max(scale, 1e-6) if eager.numel() else 0.0


def length_of(tensors):
    return sum(tensor.double().square().sum().item() for tensor in tensors) ** 0.5


def share_off(ours, expected):
    """Returns the norm of the difference between the tensors in `ours` and in `expected`, as one vector, divided by the
    norm of `expected`."""
    length = length_of(expected.values())
    return length_of(ours[name].double() - tensor.double() for name, tensor in expected.items()) / length if length else 0.0


@dataclasses.dataclass
class Step:
    """Holds the results of one training step, and of the evaluation after that step."""

    loss: float
    validation: float
    gradients: dict  # by the parameter's name, for parameters that have a gradient
    statistics: dict  # by the buffer's name

    def shares_off(self, expected):
        return {
            "loss": abs(self.loss / expected.loss - 1),
            "validation": abs(self.validation / expected.validation - 1),
            "gradient": share_off(self.gradients, expected.gradients),
            "statistics": share_off(self.statistics, expected.statistics),
        }


def targets_of(output):
    import torch

    return torch.arange(len(output)) % output.shape[1]


def step_of(model, inputs):
    """Returns the Step of a module in eager mode, and the module's outputs in training mode and in evaluation mode."""
    import torch
    from torch.nn.functional import cross_entropy

    from lockstep.export.trace import select_output

    torch.manual_seed(SEED_OF_RANK)
    model.train()
    output = select_output(call(model, inputs))
    loss = cross_entropy(output, targets_of(output))
    loss.backward()
    model.eval()
    with torch.no_grad():
        evaluation = select_output(call(model, inputs))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    statistics = {name: b.clone() for name, b in model.named_buffers() if "running_" in name}
    validation = cross_entropy(evaluation, targets_of(evaluation))
    return Step(loss.item(), validation.item(), gradients, statistics), output, evaluation


def call(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def nudged_step_of(model, start, inputs):
    """Returns the Step of a module that starts from the state `start`, after each weight in it was replaced by the next
    larger float."""
    import torch

    model.load_state_dict(start)
    model.zero_grad()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.copy_(parameter.nextafter(parameter.new_tensor(float("inf"))))
    return step_of(model, inputs)[0]


def trained(folder, samples, output, lr):
    """Trains the file net.lsm in `folder` for one step with `lockstep train`, and evaluates it. Returns the run folder.
    `output` is the model's output. """
    import numpy
    from harness import DONE, train, write_config

    images = samples[0].is_floating_point()
    x = samples[0].numpy() if images else numpy.stack([tensor.numpy().astype(numpy.int64) for tensor in samples], 1)
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", targets_of(output).numpy())
    config = write_config(
        folder,
        f"""seed: {SEED} global_batch: {len(output)} max_steps: 1 log {{ every_steps: 1 }}
        data {{ format: NPY train: ["x.npy", "y.npy"] validation: ["x.npy", "y.npy"] shuffle: false classes: {output.shape[1]}
                {"" if images else "npy { kind: TEXTS }"} }}
        model {{ name: "imported" imported {{ file: "net.lsm" }} }} optimizer {{ type: SGD lr: {lr} }}""",
    )
    run = train(config, folder / f"run_{lr}", timeout=600)
    if run.status != DONE:
        raise ChildProcessError(run.error_lines[-1])
    return folder / f"run_{lr}"


def step_in_lockstep(folder, samples, output, start, expected):
    """Returns the Step of `lockstep train`, with gradients and statistics of the same names as in `expected`. The
    gradients are computed from the change of the weights in a step with the learning rate LR."""
    from harness import events, step_losses, weights_of

    stepped, still = (trained(folder, samples, output, lr) for lr in (LR, NO_LR))
    after = weights_of(stepped)
    gradients = {name: (start[name] - after[name]) / LR for name in expected.gradients}
    statistics = {name: after[name] for name in expected.statistics}
    (loss,) = step_losses(still)
    return Step(loss, events(still, "eval")[-1]["val_loss"], gradients, statistics)


def one(source):
    """Exports the model `source`, compares the exported model's results with eager mode as described at the top of this
    file, and returns the report."""
    import torch
    from torch.nn.functional import cross_entropy

    import lockstep
    from lsm_executor import LsmModel

    torch.set_num_threads(1)
    torch.manual_seed(1)
    begin = time.monotonic()
    try:
        model, inputs = make(source)
    except NoEager as error:
        return {"result": "eager", "text": str(error)}
    report = {"inputs": list(inputs.shape[1:]) if isinstance(inputs, torch.Tensor) else sorted(inputs)}
    made = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        try:
            lockstep.export(model, inputs, folder / "net.lsm", name=source)
        except lockstep.ExportError as error:
            return report | {"result": "refused", "text": str(error)}
        executor = LsmModel(folder / "net.lsm")
        report |= {"make_s": round(made - begin, 1), "export_s": round(time.monotonic() - made, 1)}
        nodes = [node for mode in ("training", "evaluation") for node in executor.description[mode]["nodes"]]
        report["nodes"] = len(executor.description["training"]["nodes"])
        report["operations"] = dict(
            collections.Counter(
                f"sym {node['sym']}" if "sym" in node else node["op"] + ("." + node["overload"] if node["overload"] else "")
                for node in nodes
            )
        )

        named = inputs if isinstance(inputs, dict) else None
        samples = {name: other_samples(value) for name, value in named.items()} if named else other_samples(inputs)
        flat = list(samples.values()) if named else [samples]
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        expected, output, evaluation = step_of(model, samples)
        torch.manual_seed(SEED_OF_RANK)
        executor.train()
        executed = executor(*flat)
        cross_entropy(executed, targets_of(executed)).backward()
        executor.eval()
        with torch.no_grad():
            distances = {"output": distance(executed, output), "evaluation": distance(executor(*flat), evaluation)}
        gradients = (distance(executor.parameters_[name].grad, p.grad) for name, p in model.named_parameters())
        buffers = (distance(executor.buffers_[name], b) for name, b in model.named_buffers())
        distances |= {"gradients": max(gradients), "buffers": max(buffers, default=0.0)}
        del executor, executed  # free the memory of a large model
        try:
            ours = step_in_lockstep(folder, flat, output, start, expected).shares_off(expected)
        except ChildProcessError as error:
            return report | {"result": "failed", "text": str(error)}
    nudged = nudged_step_of(model, start, samples).shares_off(expected)
    is_ok = max(distances.values()) <= TOLERANCE and all(ours[key] <= max(CLOSE, 5 * nudged[key]) for key in ours)
    return report | {"result": "ok" if is_ok else "differs", "executor": distances, "lockstep": ours, "nudged": nudged}


def in_process(source, program, seconds):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "LOCKSTEP": program}
    command = [sys.executable, "-W", "ignore", __file__, program, "--one", source]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        return {"result": "late", "text": f"more than {seconds} s"}
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines and lines[-1].startswith("{"):
        return json.loads(lines[-1])
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    return {"result": "crashed", "text": errors[-1] if errors else f"status {done.returncode}"}


def smallest_members():
    """Yields, for each timm module, the model with the fewest parameters."""
    import timm
    import torch

    for module in timm.list_modules():
        sizes = {}
        for name in timm.list_models(module=module):
            try:
                with torch.device("meta"):
                    sizes[name] = sum(p.numel() for p in timm.create_model(name).parameters())
            except Exception:
                continue
        if sizes:
            yield min(sizes, key=sizes.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", metavar="LOCKSTEP", help="the program")
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN", help="timm:conv*, hf:bert, ...")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=600, help="the limit of a model")
    parser.add_argument("--operations", metavar="FILE", help="writes how often each operation occurs")
    parser.add_argument("--list", action="store_true", help="writes export_breadth_models.txt")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return 0
    if options.list:
        MODELS.write_text("".join(f"{name}\n" for name in smallest_members()))
        return 0
    every = [f"hf:{name}" for name in HUGGING_FACE] + [f"timm:{name}" for name in MODELS.read_text().split()]
    chosen = [source for source in every if any(fnmatch.fnmatch(source, pattern) for pattern in options.patterns)]
    counts, operations = collections.Counter(), collections.Counter()
    # ./lockstep builds the program if sources have changed, which two processes cannot do at the same time. So it is
    # run once here, before the processes start.
    program = os.path.abspath(options.lockstep)
    subprocess.run([program, "version"], check=True, stdout=subprocess.DEVNULL)

    def check(source):
        return in_process(source, program, options.seconds)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for source, report in zip(chosen, pool.map(check, chosen)):
            counts[report["result"]] += 1
            operations.update(report.pop("operations", {}))
            print(source, report.pop("result"), report.pop("text", None) or json.dumps(report), flush=True)
    counted = len(chosen) - counts["eager"]
    share = counts["ok"] / counted if counted else 0.0
    print(f"{counts['ok']} of {counted} models export, train a step and match eager ({share:.1%}); {dict(counts)}")
    if options.operations:
        lines = (f"{count} {name}\n" for name, count in operations.most_common())
        Path(options.operations).write_text("".join(lines))
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
