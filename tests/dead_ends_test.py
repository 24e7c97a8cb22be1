"""Tests that no message of the command line is a dead end: what a new user tries gives one line, and the command that
the line names leads to the result; or the line says that something does not exist yet."""

import json
import re
import shutil

import numpy as np
import pytest

from harness import DATA, DIGITS, DONE, USAGE, Run, expect_error, rows_of, train, weights_of, write_config, write_table

CONFIG = """epochs: 2 global_batch: 64 data { train: "digits.csv" csv { scale: 0.0625 } validation_fraction: 0.2 }
    model { name: "mlp" mlp { hidden: [8] } } optimizer { type: ADAMW lr: 0.01 } schedule { type: COSINE }
    checkpoint { every_epochs: 1 }"""

# For each command that a user tries: words of the error line, and the command that leads to the result, if there is one.
TRIED = {
    # Weights in another form.
    "export runs/a --output m.onnx": (
        "weights are written as safetensors: name it m.safetensors; this format is not written yet",
        "export runs/a --output m.safetensors",
    ),
    "export runs/a --output m.PT": ("lockstep.export --to-torch RUN", "export runs/a --output m.safetensors"),
    "export runs/a --output m.gguf": ("not written yet", "export runs/a --output m.safetensors"),
    "export runs/a --output m.lsm": ("lockstep.export MODULE", "export runs/a --output m.safetensors"),
    "export runs/a --output m.npz": ("name it m.safetensors", "export runs/a --output m.safetensors"),
    "average runs/a@23 runs/a@46 --output m.onnx": ("name it m.safetensors", "average runs/a@23 runs/a@46 --output m.safetensors"),
    "export runs/a --output m.onnx --format onnx": (
        '"--format" is not expected; ONNX, TorchScript and GGUF files are not written yet: lockstep export RUN --output',
        "export runs/a --output m.safetensors",
    ),
    "export runs/a --format=onnx": ("ONNX, TorchScript and GGUF files are not written yet", None),
    "export runs/a --onnx": ("lockstep help weights", "help weights"),
    "export runs/a m.safetensors": ("the file to write is named with --output", "export runs/a --output m.safetensors"),
    "export runs/a -o m.safetensors": ("named with --output FILE", "export runs/a --output m.safetensors"),
    "export runs/a --out m.safetensors": ("named with --output FILE", "export runs/a --output m.safetensors"),
    "export runs/a": ("--output is required: safetensors file to write", "export runs/a --output m.safetensors"),
    # Weights in place of a run.
    "evaluate mean.safetensors": (
        "holds weights and no config: name the run whose model they are of, and give --weights mean.safetensors",
        "evaluate runs/a --weights mean.safetensors",
    ),
    "predict mean.safetensors --input digits.csv": ("--weights mean.safetensors", "predict runs/a --weights mean.safetensors --input digits.csv"),
    "evaluate runs/a/weights.safetensors": ("name the run", "evaluate runs/a"),
    "evaluate train.pbtxt": ("is a config: name the run folder that it trains in, ", "evaluate runs/a"),
    "predict train.pbtxt --input digits.csv": ("name the run folder", "predict runs/a --input digits.csv"),
    "evaluate runs/a/checkpoints": ("a checkpoint is named runs/a@STEP (lockstep checkpoints runs/a", "evaluate runs/a@23"),
    "evaluate runs/a/checkpoints/step-000000000023/": ("named runs/a@STEP", "evaluate runs/a@23"),
    "evaluate digits.csv": ("digits.csv: is no run folder (lockstep runs FOLDER lists them)", "runs runs"),
    "predict runs/a --input digits.csv --output p.xlsx": ("CSV (.csv), JSON lines (.jsonl) or an array", "predict runs/a --input digits.csv --output p.csv"),
    "predict runs/a --input digits.csv --output p.parquet": ("or say with --format", "predict runs/a --input digits.csv --output p.parquet --format csv"),
    "predict runs/a --input digits.csv --output p.json": ("JSON lines (.jsonl)", "predict runs/a --input digits.csv --output p.jsonl"),
    # Going on with another config.
    "train train.pbtxt --set optimizer.lr=0.001": (
        "optimizer.lr: 0.001 where it was 0.01: set it back, go on from it in another folder with --from",
        "train train.pbtxt --set optimizer.lr=0.001 --from runs/a@46 --set run_dir=runs/b",
    ),
    "train train.pbtxt --set epochs=4": (
        "epochs: 4 where it was 2, on which the learning rates of schedule COSINE depend: set it back, go on from it",
        "train train.pbtxt --set epochs=4 --from runs/a@46 --set run_dir=runs/c",
    ),
    "train train.pbtxt --set max_steps=30": ("of schedule COSINE depend", "train train.pbtxt --set max_steps=60 --from runs/a@46 --set run_dir=runs/d"),
    "train train.pbtxt --set model.mlp.hidden=[9]": ("choose another folder with --set run_dir=...", "train train.pbtxt --set model.mlp.hidden=[9] --set run_dir=runs/e"),
    "train train.pbtxt --lr 0.1": ("set with --set optimizer.lr=VALUE", "train train.pbtxt --set optimizer.lr=0.1 --set run_dir=runs/f"),
    "train train.pbtxt --batch-size=32": ("set with --set global_batch=32", "train train.pbtxt --set global_batch=32 --set run_dir=runs/g"),
    "train train.pbtxt --gpus 2": ("-n 4 starts four ranks", None),
    "train train.pbtxt --resume": ("the same command goes on from the newest checkpoint", "train train.pbtxt"),
    # Commands of other programs.
    "generate runs/a": ("text is not generated yet: transformers generates with a trained gpt2 (lockstep help text)", "help text"),
    "onnx runs/a": ("not written yet", "export runs/a --output m.safetensors"),
    "lora train.pbtxt": ("there are no adapters such as LoRA yet", "help pytorch"),
    "serve runs/a": ("there is no server yet", "predict runs/a --input digits.csv --output predictions.csv"),
    "finetune train.pbtxt": ("lockstep train CONFIG trains", "help resume"),
    "resume runs/a": ("the same lockstep train command goes on", "train train.pbtxt"),
    "continue runs/a": ("the same lockstep train command goes on", "train train.pbtxt"),
    "validate runs/a": ("lockstep evaluate RUN", "evaluate runs/a"),
    "test runs/a": ("lockstep evaluate RUN", "evaluate runs/a --input digits.csv"),
    "infer runs/a": ("lockstep predict RUN --input FILE", "predict runs/a --input digits.csv --output predictions.csv"),
    "list": ("lockstep runs lists the runs", "runs"),
    "show runs/a": ("lockstep watch RUN shows one", "watch runs/a --once"),
    "sweep train.pbtxt": ("lockstep tune CONFIG", None),
    "merge runs/a@23 runs/a@46": ("lockstep average RUN@100 RUN@200", "average runs/a@23 runs/a@46 --output m.safetensors"),
    "diff runs/a runs/a": ("lockstep compare RUN RUN", "compare runs/a runs/a"),
    "tokenize a.txt": ("lockstep prepare tokens TEXTS", "prepare tokens a.txt --output m.bin"),
    "init digits.csv": ("lockstep new DATA", None),
    "sbatch train.pbtxt": ("lockstep slurm CONFIG --time 4:00:00", "slurm train.pbtxt --time 4:00:00"),
    "kubectl train.pbtxt": ("lockstep kubernetes CONFIG --image IMAGE", None),
    "folds train.pbtxt": ("lockstep help folds", "help folds"),
    "vram train.pbtxt": ("lockstep estimate CONFIG --gpu T4", "estimate train.pbtxt --gpu T4"),
    "help lockstep.export": ("lockstep help pytorch", "help pytorch"),
    "help onnx": ("not written yet", None),
    "pytorch": ("lockstep help pytorch", "help pytorch"),
    "zzz": ("(known: new, train, evaluate", "help"),
    # Data of another form.
    "new reviews.csv": ("free text is no input of a table's model yet", "help text"),
    "new files.csv": ("put the images into a folder for each label", None),
    "new a.txt": ("if the file is text and no table, lockstep prepare tokens", "prepare tokens a.txt --output m.bin"),
    "new texts": ("text files: lockstep prepare tokens FILES --output train.bin", "prepare tokens texts/a/1.txt texts/b/2.txt --output m.bin"),
    "new r.jsonl": ("write them as CSV (in pandas: read_json(lines=True), to_csv)", None),
    "new r.xlsx": ("in pandas: read_excel, to_csv", None),
    "new r.parquet": ("in pandas: read_parquet, to_csv", None),
    "new train.pbtxt": ("is a config already: lockstep train trains it", "train train.pbtxt"),
    "new runs/a": ("a run's folder, which lockstep evaluate and lockstep predict take", "evaluate runs/a"),
    "new flat": ('array.astype("uint16").tofile("train.bin")', None),
    "new flat/flat.npy": ('array.astype("uint16").tofile("train.bin")', None),
    "new net.lsm": ("a model and no data", "help pytorch"),
}  # fmt: skip
IN_COMMITS = set(list(TRIED)[::5])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("dead_ends")
    shutil.copy(DIGITS, path / "digits.csv")
    (path / "train.pbtxt").write_text(f'device: CPU run_dir: "runs/a" {CONFIG}')
    run = Run(["train", "train.pbtxt"], cwd=path)
    assert run.status == DONE, run
    assert Run(["average", "runs/a@23", "runs/a@46", "--output", "mean.safetensors"], cwd=path).status == DONE
    write_table(path / "reviews.csv", [[f"a long review of {i} words which nobody reads", i % 2] for i in range(60)], ["text", "label"])
    write_table(path / "files.csv", [[f"img/{i}.jpg", i % 2] for i in range(60)], ["file", "label"])
    (path / "a.txt").write_text("some words of a text\n" * 200)
    for name in ("a/1.txt", "b/2.txt"):
        (path / "texts" / name).parent.mkdir(parents=True)
        (path / "texts" / name).write_text("some words of a text\n" * 200)
    (path / "r.jsonl").write_text("".join(json.dumps({"text": "x", "label": i % 2}) + "\n" for i in range(60)))
    for name in ("r.xlsx", "r.parquet", "net.lsm"):
        (path / name).write_bytes(b"PK\3\4")
    (path / "flat").mkdir()
    np.save(path / "flat/flat.npy", np.arange(5000, dtype=np.uint16))
    return path


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.all_tier("another of the same table", unless=lambda tried: tried in IN_COMMITS)
def test_a_message_leads_on(tried, folder):
    words, then = TRIED[tried]
    command = [*tried.split(), *(["--output", "drafted.pbtxt"] if tried.startswith("new ") else [])]
    run = Run(command, cwd=folder)
    expect_error(run, DATA if run.status == DATA and tried.startswith("new ") else USAGE, words)
    assert not list(folder.glob("m.*")) and not (folder / "drafted.pbtxt").exists()
    if then is not None:
        done = Run(then.split(), cwd=folder)
        assert done.status == DONE, done
        for path in folder.glob("m.*"):
            path.unlink()


def test_averaged_weights_are_evaluated_and_predicted(folder, tmp_path):
    """Checks the metrics and predictions of averaged weights: those of a run that is made of these weights."""
    shutil.copytree(folder / "runs/a", tmp_path / "mean")
    shutil.copy(folder / "mean.safetensors", tmp_path / "mean/weights.safetensors")
    shutil.rmtree(tmp_path / "mean/checkpoints")
    printed = [
        json.loads(Run(["evaluate", *words, "--json"], cwd=folder).out)
        for words in (["runs/a", "--weights", "mean.safetensors"], [tmp_path / "mean"])
    ]
    assert printed[0].pop("weights") == "mean.safetensors" and printed[1].pop("weights") == ""
    assert printed[0] == printed[1]
    assert printed[0] != {key: value for key, value in json.loads(Run(["evaluate", "runs/a", "--json"], cwd=folder).out).items() if key != "weights"}
    rows = []
    for number, words in enumerate((["runs/a", "--weights", "mean.safetensors"], [tmp_path / "mean"])):
        run = Run(["predict", *words, "--input", "digits.csv", "--output", tmp_path / f"{number}.csv"], cwd=folder)
        assert run.status == DONE, run
        rows.append(rows_of(tmp_path / f"{number}.csv"))
    assert rows[0] == rows[1]
    wrong = Run(["evaluate", "runs/a", "--weights", "digits.csv"], cwd=folder)
    expect_error(wrong, wrong.status, "digits.csv")


@pytest.mark.all_tier("it exports modules, which takes ten seconds")
def test_a_run_with_frozen_parameters_is_unfrozen(tmp_path):
    """Checks that a run which trained some of a module's parameters leads on to one that trains all of them, and that
    the second run begins with the first one's weights."""
    torch = pytest.importorskip("torch")
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
    import lockstep

    shutil.copy(DIGITS, tmp_path / "digits.csv")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))
    for name, frozen in (("head", True), ("all", False)):
        net[0].requires_grad_(not frozen)
        lockstep.export(net, torch.randn(2, 64), tmp_path / f"{name}.lsm")
    data = 'data { train: "digits.csv" csv { scale: 0.0625 } } epochs: 1 optimizer { lr: 0.01 }'
    for name in ("head", "all"):
        text = f'device: CPU {data} run_dir: "runs/{name}" model {{ name: "imported" imported {{ file: "{name}.lsm" }} }}'
        (tmp_path / f"{name}.pbtxt").write_text(text)
    assert Run(["train", "head.pbtxt"], cwd=tmp_path).status == DONE
    refused = Run(["train", "all.pbtxt", "--from", "runs/head"], cwd=tmp_path)
    expect_error(refused, USAGE, "its run trained 2 of the model's parameters, and this one trains 4", "leave out --from: ")
    assignment = re.search(r"--set (init_from=\S+)", refused.err)[1]
    run = Run(["train", "all.pbtxt", "--set", assignment, "--set", "optimizer.lr=1e-12"], cwd=tmp_path)
    assert run.status == DONE, run
    for name, weight in weights_of(tmp_path / "runs/head").items():
        torch.testing.assert_close(weights_of(tmp_path / "runs/all")[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(300, 48), (300, 2, 48)])
def test_arrays_of_token_numbers(shape, tmp_path):
    """Checks that `new` takes integers for token numbers as they are in texts, with a mask or without, and that its
    config trains a module that was exported with the command that it prints. Numbers that are alike, or that have
    ranges of their own, stay numbers."""
    rng = np.random.default_rng(0)
    tokens = rng.zipf(1.2, (300, 48)).clip(1, 30000)
    tokens[:, 0] = 101
    tokens[:, 1:] = np.where(np.arange(47) < rng.integers(10, 47, (300, 1)), tokens[:, 1:], 0)
    inputs = tokens if len(shape) == 2 else np.stack([tokens, tokens > 0], 1)
    np.save(tmp_path / "x.npy", inputs.astype(np.int64))
    np.save(tmp_path / "y.npy", rng.integers(0, 2, 300))
    run = Run(["new", "x.npy", "--output", "train.pbtxt"], cwd=tmp_path)
    assert run.status == DONE, run
    config = (tmp_path / "train.pbtxt").read_text()
    assert "npy { kind: TEXTS }" in config and 'file: "texts.lsm"' in config and "lstm" not in config
    model = "hf:FOLDER --classes 2" if len(shape) == 3 else "MODULE:FUNCTION"
    assert f"python3 -m lockstep.export {model} --length 48 --output texts.lsm\n" in run.out, run
    assert "which are taken for token numbers" in run.out
    expect_error(Run(["train", "train.pbtxt"], cwd=tmp_path), USAGE, "texts.lsm")


@pytest.mark.parametrize("kind", ["signals", "features", "bytes", "small"])
def test_arrays_of_other_integers(kind, tmp_path):
    rng = np.random.default_rng(0)
    inputs = {
        "signals": np.cumsum(rng.integers(-30, 31, (300, 2, 48)), -1) + 4000,
        "features": rng.integers(0, np.geomspace(2, 100000, 48), (300, 48)),
        "bytes": rng.integers(0, 256, (300, 48)).astype(np.uint8),
        "small": rng.integers(0, 17, (300, 48)),
    }[kind]
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", rng.integers(0, 2, 300))
    run = Run(["new", "x.npy", "--output", "train.pbtxt"], cwd=tmp_path)
    assert run.status == DONE and "TEXTS" not in (tmp_path / "train.pbtxt").read_text(), run


def test_help_lists_topics():
    """Checks that `help` and --help name every topic and lockstep.export, and that each topic has a text whose lines
    fit a terminal."""
    out = Run(["help"]).out
    assert out == Run(["--help"]).out
    assert "python3 -m lockstep.export" in out
    topics = re.findall(r"^  (\w+)  ", out[out.index("Topics (lockstep help TOPIC):") :], re.MULTILINE)
    assert {"fields", "data", "text", "pytorch", "weights", "resume"} <= set(topics)
    for topic in topics:
        run = Run(["help", topic])
        assert run.status == DONE and len(run.out.split("\n")) > 4, run
        assert max(map(len, run.out.split("\n"))) <= 120, run


def test_a_config_of_a_run_elsewhere_is_named(tmp_path):
    config = write_config(tmp_path, 'data { train: "%s" } run_dir: "%s/there" model { name: "mlp" }' % (DIGITS, tmp_path))
    expect_error(Run(["evaluate", config]), USAGE, f"{config}: is a config: name the run folder that it trains in, {tmp_path}/there")


def test_more_epochs_without_a_schedule_go_on(tmp_path):
    config = write_config(tmp_path, f'epochs: 1 data {{ train: "{DIGITS}" }} model {{ name: "mlp" }} checkpoint {{ every_epochs: 1 }}')
    assert train(config, tmp_path / "run").status == DONE
    assert train(config, tmp_path / "run", "--set", "epochs=2").status == DONE
