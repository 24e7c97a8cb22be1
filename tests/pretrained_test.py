"""Tests `lockstep.export hf:... --pretrained`: the files that transformers writes have other names than its modules, and
hold the experts of a mixture one by one. What is exported must be what transformers itself loads, bit for bit."""

import inspect
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("transformers before 5 writes its modules' own names", allow_module_level=True)

import lockstep  # noqa: E402
from lockstep.export import __main__ as command  # noqa: E402
from lockstep.export import sources  # noqa: E402
from lockstep.export.errors import ExportError  # noqa: E402
from lockstep.export.weights import load_pretrained, read  # noqa: E402
from lsm_executor import LsmModel  # noqa: E402

CLASSES = 3
TASKS = ("sequence-classification", "image-classification", "causal-lm")
# Values for the fields that configs have; each config takes those that it knows.
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 64, "image_size": 32, "patch_size": 8, "vocab_size": 200, "pad_token_id": 0,
    "num_labels": CLASSES, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "dim": 32, "n_layers": 2, "n_heads": 2,
    "hidden_dim": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "max_position_embeddings": 64, "embedding_size": 32,
    "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 64,
}  # fmt: skip
MOST_PARAMETERS = 6_000_000
IN_COMMITS = ("bert", "vit", "dinov2", "nomic_bert", "mixtral")


def architectures():
    """Returns {model_type: task} of all architectures that transformers has for TASKS."""
    found = {}
    for task in TASKS:
        for config in getattr(transformers, sources.TASKS[task][1]).keys():
            found.setdefault(config.model_type, task)
    return found


TASK_OF = architectures()


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def config_of(kind, **changes):
    """Returns a tiny config, or skips the test if SIZES do not go together for this architecture."""
    try:
        make = type(transformers.AutoConfig.for_model(kind))
        known = set(inspect.signature(make.__init__).parameters) | {"num_labels"}
        for base in make.__mro__:
            known |= set(getattr(base, "__annotations__", {}))
        config = make(**{name: value for name, value in (SIZES | changes).items() if name in known})
        with torch.device("meta"):
            model = getattr(transformers, sources.TASKS[TASK_OF[kind]][0]).from_config(config)
    except Exception as error:
        if kind in IN_COMMITS:
            raise
        pytest.skip(f"the small sizes make no {kind}: {type(error).__name__}")
    if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
        pytest.skip(f"the small sizes leave {kind} large")
    return config


def model_of(kind, seed, **changes):
    torch.manual_seed(seed)
    model, inputs = sources.hugging_face_model(config_of(kind, **changes), sources.Options(length=16, task=TASK_OF[kind]))
    return model, inputs


def expect_equal(ours, theirs, but=()):
    assert ours.keys() == theirs.keys()
    different = [name for name in ours if name not in but and not torch.equal(ours[name], theirs[name])]
    assert different == []


@pytest.mark.parametrize("kind", sorted(TASK_OF))
@pytest.mark.all_tier("other architectures are renamed by the same call", unless=lambda kind: kind in IN_COMMITS)
def test_what_transformers_saves_is_loaded(kind, tmp_path):
    saved, _ = model_of(kind, seed=1)
    saved.save_pretrained(tmp_path)
    model, _ = model_of(kind, seed=2)
    loaded = load_pretrained(model, str(tmp_path))
    assert loaded.kept == []
    expect_equal(model.state_dict(), saved.state_dict())


def test_there_are_files_with_other_names(tmp_path):
    """Checks that the cases above cover renamed and joined tensors."""
    for kind in ("vit", "dinov2", "nomic_bert", "mixtral"):
        model, _ = model_of(kind, seed=1)
        model.save_pretrained(tmp_path / kind)
        assert read(str(tmp_path / kind)).keys() != model.state_dict().keys(), kind


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_sharded_files(kind, tmp_path):
    saved, _ = model_of(kind, seed=1)
    saved.save_pretrained(tmp_path, max_shard_size="40KB")
    index = tmp_path / "model.safetensors.index.json"
    assert len(set(json.loads(index.read_text())["weight_map"].values())) > 1
    for path in (tmp_path, index):
        model, _ = model_of(kind, seed=2)
        load_pretrained(model, str(path))
        expect_equal(model.state_dict(), saved.state_dict())


@pytest.mark.parametrize("kind", ["bert", "dinov2"])
def test_another_head(kind, tmp_path):
    """Loads the weights of a model with five classes, and those of a model without a head. All but the head's weights
    must come from the file, and the head must stay as it was made."""
    five, _ = model_of(kind, seed=1, num_labels=5)
    for saved in (five, getattr(five, five.base_model_prefix)):
        folder = str(tmp_path / type(saved).__name__)
        saved.save_pretrained(folder)
        model, _ = model_of(kind, seed=2)
        made = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with pytest.raises(ExportError, match="classifier"):
            load_pretrained(model, folder)
        expect_equal(model.state_dict(), made)
        loaded = load_pretrained(model, folder, replace_head=True)
        assert sorted(loaded.kept) == ["classifier.bias", "classifier.weight"] and loaded.unused == []
        heads = set(loaded.kept)
        expect_equal({name: tensor for name, tensor in model.state_dict().items() if name in heads},
                     {name: tensor for name, tensor in made.items() if name in heads})  # fmt: skip
        expect_equal(model.state_dict(), five.state_dict(), but=heads)


def test_a_mixture_of_experts_by_the_command(tmp_path, capfd, monkeypatch):
    """Exports a mixture in bfloat16, whose file has each expert by itself. The file must compute what the module does
    in float32, and the line must say what of the weights was not used."""
    config = config_of("mixtral", dtype="bfloat16", num_hidden_layers=1)
    torch.manual_seed(1)
    saved = transformers.AutoModelForCausalLM.from_config(config)
    assert next(saved.parameters()).dtype == torch.bfloat16
    saved.save_pretrained(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    safetensors.torch.save_file(weights | {"extra.weight": torch.ones(3)}, tmp_path / "more.safetensors")
    with pytest.raises(ExportError, match="more.safetensors has, and the module does not, extra.weight"):
        load_pretrained(saved, str(tmp_path / "more.safetensors"))
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    words = ["hf:.", "--task", "causal-lm", "--length", "16", "--output", "net.lsm"]
    assert command.main([*words, "--pretrained", "more.safetensors", "--replace-head"]) == 0
    (line,) = "".join(capfd.readouterr()).splitlines()
    assert line.endswith("bytes, not used: extra.weight"), line
    tokens = torch.randint(2, 200, (3, 16))
    with torch.no_grad():
        ours = LsmModel(tmp_path / "net.lsm").eval()(tokens)
        theirs = saved.float().eval()(input_ids=tokens).logits
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_weights_of_16_bits_are_refused(tmp_path):
    model, inputs = model_of("bert", seed=1)
    with pytest.raises(ExportError, match=r"has bfloat16, in which most updates are lost: export model.float\(\)"):
        lockstep.export(model.bfloat16(), inputs, tmp_path / "net.lsm")
    assert not (tmp_path / "net.lsm").exists()
    for parameter in model.bert.parameters():
        parameter.requires_grad = False
    model.classifier.float()
    model.classifier.register_forward_pre_hook(lambda module, arguments: (arguments[0].float(),))
    lockstep.export(model, inputs, tmp_path / "net.lsm")  # frozen weights may have 16 bits


def test_an_operation_of_a_mixture_has_a_cure(tmp_path):
    config = config_of("mixtral")
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(ExportError, match=r"histc .* after model.set_experts_implementation\('batched_mm'\)"):
        lockstep.export(model, {"input_ids": torch.ones(2, 16).long()}, tmp_path / "net.lsm")


def damaged_index(folder, change):
    model, _ = model_of("bert", seed=1)
    model.save_pretrained(folder, max_shard_size="40KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    change(folder, content)
    if content is not None:
        index.write_text(json.dumps(content))
    return model, str(index)


@pytest.mark.parametrize(
    "change,says",
    [
        (lambda folder, content: content.pop("weight_map"), "no index of weights: it has no weight_map"),
        (lambda folder, content: content.update(weight_map=3), "no index of weights"),
        (lambda folder, content: content.update(weight_map={"a": "../a.safetensors"}), "a file of another folder"),
        (lambda folder, content: content["weight_map"].update(a="b.safetensors"), "b.safetensors: no weights can be read"),
        (
            lambda folder, content: content["weight_map"].update(a=content["weight_map"]["classifier.bias"]),
            r"lacks a, which \S+index.json says are there",
        ),
    ],
    ids=["no map", "no dict", "elsewhere", "no file", "no tensor"],
)
def test_wrong_indexes(change, says, tmp_path):
    model, index = damaged_index(tmp_path, change)
    with pytest.raises(ExportError, match=says):
        load_pretrained(model, index)


def test_a_folder_without_weights():
    model, _ = model_of("bert", seed=1)
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(ExportError, match="the folder has no model.safetensors, model.safetensors.index.json"):
            load_pretrained(model, folder)
