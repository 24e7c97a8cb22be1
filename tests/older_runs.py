"""Describes the corpus of older runs in tests/older_run: lists its runs, and says how their program is started.

A run's bits depend on the kernels that LibTorch chooses for the processor, and on the number of cores. Therefore the
corpus's programs are started with kernels for every x86-64 processor, on one core for each rank. `machine()` returns a
fingerprint of LibTorch's computations on this machine. If it equals a run's fingerprint, the run's bits must be
reproduced.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys

CORPUS = pathlib.Path(__file__).parent / "older_run"
# The folder in which the corpus was made: the configs in its runs have data paths below this folder.
ORIGIN = "/tmp/lockstep_older_run"

PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
CLOSE = 1e-5  # tolerance relative to the largest value of the same tensor, or to the number itself


@dataclasses.dataclass(frozen=True)
class OlderRun:
    """Describes a run of the config that config() returns. The corpus has the run's state after the step `middle`.

    `data`, `model` and `more` are parts of the config. `predict` has the arguments of `lockstep predict`, and is empty
    where nothing can be predicted.
    """

    data: str
    model: str
    more: str
    steps: int = 8
    middle: int = 4  # 0: the corpus has no checkpoint of this run, because the checkpoint would be large
    ranks: int = 1
    folds: int = 0
    predict: tuple = ("--held-back", "--probabilities")
    output: str = "predictions.csv"
    keeps_all: bool = False  # whether the run keeps all checkpoints up to step `middle`, because the best one is needed
    weights: bool = True  # whether the corpus has the last weights; it has at least their hash in any case
    # Names of tensors that depend on rounding errors: the bias before a BatchNorm, this BatchNorm's running mean, and
    # the bias of an attention's keys. The biases' gradients are zero up to rounding, and Adam turns even such small
    # gradients into updates of full size, as LAMB does. These tensors are compared only if bits are compared.
    rounding: tuple = ()

    def config(self):
        return f"""device: CPU
deterministic: true
max_steps: {self.steps}
loader {{ threads: 0 }}
log {{ every_steps: 1 }}
checkpoint {{ every_steps: {self.middle or self.steps} keep: 100 }}
data {{ {self.data} }}
model {{ {self.model} }}
{self.more}
"""

    def parts(self):
        """Returns the folders that hold the run's weights, relative to the run folder."""
        return [f"fold-{i}" for i in range(self.folds)] if self.folds else ["."]


TABLE = """train: "../../data/table.csv" csv {
    header: true label: "choice" label_names: true ignore: "id" category: "city" date: "joined"
    missing: MEAN missing_indicator: true scaling: STANDARD }"""
PHOTOS = 'validation_fraction: 0.3 images { size: 8 %s } mean: [0.4, 0.5, 0.6] std: 0.25'

RUNS = {
    # Covers CSV with categories, dates and missing cells; AdamW, a cosine schedule, weight averaging, gradient
    # clipping, early stopping, and a best checkpoint that is kept.
    "table": OlderRun(
        data=f"{TABLE} validation_fraction: 0.25",
        model='name: "mlp" mlp { hidden: [6, 5] batch_norm: true dropout: 0.1 embed_categories: 2 }',
        more="""global_batch: 12
optimizer { type: ADAMW lr: 0.02 weight_decay: 0.05 no_decay: VECTORS clip_norm: 1 ema_decay: 0.8 }
schedule { type: COSINE warmup_steps: 2 final_fraction: 0.1 }
loss { balanced: true }
early_stopping { metric: "accuracy" patience: 2 }""",
        steps=40,
        middle=6,
        predict=("--input", "data/table.csv", "--probabilities", "--id", "id", "--keep", "city"),
        keeps_all=True,
        rounding=("0.bias", "1.running_mean", "4.bias", "5.running_mean"),
    ),
    "tabm": OlderRun(
        data="""task: REGRESSION standardize_targets: true train: "../../data/houses.csv.gz"
    validation: "../../data/houses_held_back.csv" csv {
    header: true label: "price" category: "street" category_min_rows: 5 scaling: QUANTILE }""",
        model='name: "tabm" tabm { members: 4 hidden: [5, 4] dropout: 0.1 }',
        more="""global_batch: 16
optimizer { type: LAMB lr: 0.02 weight_decay: 0.01 }
schedule { type: ONE_CYCLE warmup_steps: 3 }
loss { type: HUBER delta: 0.5 }""",
        predict=("--held-back",),
    ),
    "labels": OlderRun(
        data="""task: MULTI_LABEL train: "../../data/labels.csv" validation_fraction: 0.25
    csv { delimiter: ";" label_column: -2 label_columns: 2 scaling: ROBUST ignore: "0" }
    sampling { by: WEIGHTED column: "0" }""",
        model='name: "mlp" mlp { hidden: [5] } ',
        more="""global_batch: 10 accumulation: 2
optimizer { type: ADAM lr: 0.03 weight_decay: 0.01 clip_value: 0.02 }
schedule { type: PLATEAU patience: 0 factor: 0.5 }
loss { type: FOCAL gamma: 1.5 positive_weight: [2, 0.5] }""",
        predict=("--held-back",),
    ),
    # Covers a folder of images in four formats that are decoded once into a cache, random colours, and mixup.
    "photos": OlderRun(
        data=f"""format: IMAGES train: "../../data/photos" {PHOTOS % 'cache: DECODED min_area: 0.3'}
    sampling {{ by: BALANCED }}
    augment {{ brightness: 0.3 contrast: 0.3 saturation: 0.3 hue: 0.1 mixup: 0.4 }}""",
        model='name: "convnet" convnet { channels: [3, 4] hidden: 5 } label_smoothing: 0.1',
        more="""global_batch: 5
optimizer { type: SGD lr: 0.05 momentum: 0.9 nesterov: true weight_decay: 0.001 }
schedule { type: STEP every_steps: 3 factor: 0.5 }""",
        predict=("--input", "data/photos", "--probabilities"),
    ),
    # Covers tar shards, on two ranks that shard the optimizer's state.
    "shards": OlderRun(
        data=f"""format: IMAGES train: "../../data/shards" {PHOTOS % 'cache: ENCODED mirror: false'}
    augment {{ cutmix: 1 }}""",
        model='name: "vit" vit { patch: 4 layers: 2 heads: 2 width: 8 hidden: 12 dropout: 0.1 }',
        more="""global_batch: 6
optimizer { type: ADAMW lr: 0.01 shard: true clip_norm: 0.5 }
schedule { type: LINEAR final_fraction: 0.2 }""",
        ranks=2,
        rounding=tuple(f"encoder.layers.encoder_layer_{i}.self_attention.in_proj_bias" for i in range(2)),
    ),
    # Covers masks, and a model that python -m lockstep.export wrote.
    "masks": OlderRun(
        data="""format: IMAGES task: SEGMENTATION train: ["../../data/scenes/images", "../../data/scenes/masks"]
    validation_fraction: 0.25 images { size: 8 min_area: 0.4 mask_ignored: 9 } mean: 0.5 std: 0.25""",
        model='name: "imported" imported { file: "../../data/unet.lsm" } activation_checkpointing: true',
        more="""global_batch: 4
optimizer { type: ADAMW lr: 0.01 }
loss { class_weight: [1, 2, 0.5] }""",
        predict=("--input", "data/scenes/images"),
        output="predictions.npy",
    ),
    "series": OlderRun(
        data="""format: NPY task: REGRESSION train: ["../../data/series.npy", "../../data/series_targets.npy"]
    folds { count: 4 fold: 1 by: TIME } shuffle: false last_batch: DROP""",
        model='name: "lstm" lstm { hidden: 5 layers: 2 }',
        more="""global_batch: 6
optimizer { type: SGD lr: 0.1 }
schedule { type: RANGE_TEST first_fraction: 0.01 }
loss { type: QUANTILE quantile: 0.8 }""",
        predict=("--held-back",),
    ),
    # Covers texts from NPY files, and a TorchScript file.
    "texts": OlderRun(
        data="""format: NPY npy { kind: TEXTS } train: ["../../data/texts.npy", "../../data/texts_labels.npy"]
    validation_fraction: 0.25 classes: 3""",
        model='name: "torchscript" torchscript { file: "../../data/texts.pt" }',
        more="""global_batch: 8
optimizer { type: LARS lr: 20 momentum: 0.9 weight_decay: 0.01 }""",
    ),
    "tokens": OlderRun(
        data="""format: TOKENS train: "../../data/tokens/story.bin" validation: "../../data/tokens/story_validation.bin"
    classes: 257 tokens { length: 12 }""",
        model='name: "gpt2" gpt2 { layers: 1 heads: 2 width: 8 dropout: 0.1 }',
        more="""global_batch: 8 accumulation: 2
optimizer { type: ADAMW lr: 0.01 beta2: 0.95 weight_decay: 0.1 no_decay: VECTORS no_decay_name: "wpe" clip_norm: 1 }
schedule { type: COSINE warmup_steps: 3 }""",
        predict=(),
        rounding=("transformer.h.0.attn.c_attn.bias",),
    ),
    "mnist": OlderRun(
        data="""format: MNIST train: ["../../data/images-idx3-ubyte", "../../data/labels-idx1-ubyte"]
    validation_fraction: 0.25 mean: 0.13 std: 0.31""",
        model='name: "mlp" mlp { hidden: [4] }',
        more="""global_batch: 8
optimizer { type: SGD lr: 0.2 lr_scaling: SQUARE_ROOT scaling_batch: 16 }
anomaly { policy: SKIP }""",
    ),
    "cifar10": OlderRun(
        data='format: CIFAR10 train: "../../data/cifar.bin" validation_fraction: 0.25 mean: 0.5 std: 0.25',
        model='name: "convnet" convnet { channels: [2, 2, 3] hidden: 0 }',
        more="""global_batch: 4
optimizer { type: ADAM lr: 0.01 epsilon: 1e-6 beta1: 0.8 }""",
    ),
    # The smallest ResNet has 11 million parameters, so the corpus has no checkpoint, and the test trains it from the
    # beginning.
    "resnet": OlderRun(
        data='format: CIFAR10 train: "../../data/cifar.bin" validation_fraction: 0.25 mean: 0.5 std: 0.25',
        model='name: "resnet" resnet { depth: 18 }',
        more="""global_batch: 6
optimizer { type: SGD lr: 0.01 momentum: 0.9 }""",
        steps=2,
        middle=0,
        predict=(),
        weights=False,
    ),
    # Covers synthetic samples on two ranks, with BatchNorm over both ranks, and gradients that are all-reduced in FP16.
    "synthetic": OlderRun(
        data="format: SYNTHETIC input_shape: 6 classes: 3 synthetic { samples: 30 } validation_fraction: 0.2",
        model='name: "mlp" mlp { hidden: [5, 4] batch_norm: true }',
        more="""global_batch: 8
optimizer { type: LAMB lr: 0.05 ema_decay: 0.9 }
ddp { sync_batch_norm: true reduce_dtype: FP16 first_bucket_bytes: 64 bucket_bytes: 128 }""",
        ranks=2,
        predict=(),
        rounding=("0.bias", "1.running_mean", "3.bias", "4.running_mean"),
    ),
    "folds": OlderRun(
        data=f'{TABLE} folds {{ by: GROUP group: "city" }}',
        model='name: "mlp" mlp { hidden: [3] }',
        more="global_batch: 12\noptimizer { type: ADAMW lr: 0.02 }",
        folds=2,
    ),
}


# Maps a folder of data/ to the arguments with which `lockstep prepare` made it.
PREPARED = {
    "shards": ("shards", "data/photos", "data/shards", "--shard-mib", "1", "--seed", "3"),
    "small": ("images", "data/photos", "data/small", "--size", "8"),
    "tokens": ("tokens", "data/story.txt", "--output", "data/tokens/story.bin", "--validation-fraction", "0.2"),
}


def environment(native=False):
    """Returns the environment variables for a program of the corpus; with `native`, LibTorch uses this processor's
    kernels."""
    return {"OMP_NUM_THREADS": "1", **({name: "" for name in PORTABLE} if native else PORTABLE)}


def launcher(ranks):
    """Returns the words to put before a program to keep its processes on as many cores as there are ranks."""
    cores = sorted(os.sched_getaffinity(0))[:ranks]
    return ["taskset", "--cpu-list", ",".join(map(str, cores))]


# A script that computes the kinds of sums, products and functions that training consists of.
COMPUTE = """
import hashlib, torch
from torch import nn
from torch.nn import functional
torch.set_num_threads(1)
torch.manual_seed(7)
model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(2),
                      nn.LSTM(36, 10, batch_first=True))
x = torch.randn(5, 3, 12, 12)
states, _ = model(x)
q = functional.layer_norm(states, [10]).unsqueeze(1)
weight = torch.randn(60, 33, requires_grad=True)
out = functional.scaled_dot_product_attention(q, q, q).flatten(1) @ weight
loss = functional.cross_entropy(out, torch.arange(5)) + out.sigmoid().log().mean() + (out.tanh().exp().sqrt()).var()
loss.backward()
digest = hashlib.sha256()
for tensor in (loss, out, weight.grad, *(p.grad for p in model.parameters())):
    digest.update(tensor.detach().contiguous().numpy().tobytes())
print(digest.hexdigest()[:16])
"""


@functools.cache
def machine():
    """Returns the fingerprint of LibTorch's results on this machine with the kernels that the corpus uses."""
    done = subprocess.run(
        [sys.executable, "-c", COMPUTE],
        env=dict(os.environ, **environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def listed(text):
    """Returns {name of the run folder: object} for the objects that `lockstep runs --json` printed, without the field
    `run`."""
    lines = map(json.loads, text.split("\n")[:-1])
    return {pathlib.Path(line.pop("run")).name: line for line in lines}


def tensors_of(path):
    """Returns {name: array} of a safetensors file."""
    import safetensors.numpy

    return safetensors.numpy.load_file(path)


def digest_of(tensors):
    """Returns a hash of the names, types, shapes and bits of tensors."""
    digest = hashlib.sha256()
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
