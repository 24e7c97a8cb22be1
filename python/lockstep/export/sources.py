"""Makes the module that a name on the command line stands for, with an example of its inputs.

  timm:NAME            timm.create_model, freshly initialised
  torchvision:NAME     torchvision.models.get_model, freshly initialised
  hf:FOLDER            a Hugging Face model from config.json (or a path that ends in .json). By default it classifies
                       sequences, or images if the architecture takes pixels; --task asks for another head
  MODULE:FUNCTION      FUNCTION() of a Python module in the current directory; it returns an nn.Module, or a pair of
                       an nn.Module and its example inputs. Such a name runs the user's own code.

Nothing is downloaded: weights come from --pretrained.

what can fail -> what the caller sees (ExportError, one line)
  the package is not installed, it has no such model, or the config is not valid -> the reason
  the user's function raises, or returns something else -> the line and the reason
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

from lockstep.export.errors import ExportError, first_line, users_line

# For each task: the class of the library transformers that makes the model, and the mapping whose keys are the
# supported configs.
TASKS = {
    "sequence-classification": ("AutoModelForSequenceClassification", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING"),
    "image-classification": ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
    "token-classification": ("AutoModelForTokenClassification", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING"),
    "causal-lm": ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
    "masked-lm": ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    "segmentation": ("AutoModelForSemanticSegmentation", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING"),
}
_OF_IMAGES = ("image-classification", "segmentation")


@dataclass(frozen=True)
class Options:
    """Options of the command line for the module. None stands for the module's own default."""

    size: int | None = None  # pixels on each side of an image
    channels: int = 3
    classes: int | None = None
    length: int | None = None  # the number of tokens in a sample
    shape: tuple[int, ...] | None = None  # the shape of one sample, for MODULE:FUNCTION
    task: str | None = None  # one of TASKS, for hf:


def make(source: str, options: Options) -> tuple[nn.Module, Any]:
    """Returns the module, and example inputs for lockstep.export with two samples."""
    kind, colon, name = source.partition(":")
    if not colon or not kind or not name:
        raise ExportError(f"{source}: name a model as timm:NAME, torchvision:NAME, hf:FOLDER or MODULE:FUNCTION")
    makers = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face}
    maker = makers.get(kind)
    return maker(name, options) if maker else _user(kind, name, options)


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ExportError(f"the package {name} cannot be imported: {first_line(error)}") from error


def _images(options: Options, size: int) -> torch.Tensor:
    size = options.size or size
    return torch.randn(2, options.channels, size, size)


def _timm(name: str, options: Options) -> tuple[nn.Module, Any]:
    timm = _package("timm")
    if not timm.is_model(name):
        raise ExportError(f"timm has no model {name}")
    wanted = {} if options.classes is None else {"num_classes": options.classes}
    if options.channels != 3:
        wanted["in_chans"] = options.channels
    sized = {} if options.size is None else {"img_size": options.size}
    try:
        try:
            model = timm.create_model(name, pretrained=False, **wanted, **sized)
        except TypeError as error:  # a convolutional model takes images of any size, so it has no argument img_size
            if "img_size" not in str(error):
                raise
            model = timm.create_model(name, pretrained=False, **wanted)
    except Exception as error:
        raise ExportError(f"timm cannot make {name}: {first_line(error)}") from error
    return model, _images(options, model.default_cfg["input_size"][-1])


def _torchvision(name: str, options: Options) -> tuple[nn.Module, Any]:
    models = _package("torchvision.models")
    if name not in models.list_models():
        raise ExportError(f"torchvision has no model {name}")
    wanted: dict[str, Any] = {} if options.classes is None else {"num_classes": options.classes}
    if name in models.list_models(module=models.segmentation):
        wanted["weights_backbone"] = None
    sized = name.startswith("vit") and options.size is not None
    try:
        model = models.get_model(name, weights=None, **wanted, **({"image_size": options.size} if sized else {}))
    except Exception as error:
        raise ExportError(f"torchvision cannot make {name}: {first_line(error)}") from error
    return model, _images(options, 299 if name == "inception_v3" else 224)


def _hugging_face(path: str, options: Options) -> tuple[nn.Module, Any]:
    if not os.path.exists(path):
        raise ExportError(f"hf:{path}: there is no such folder or config.json")
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = _package("transformers")
    wanted = {} if options.classes is None else {"num_labels": options.classes}
    try:
        config = transformers.AutoConfig.from_pretrained(path, **wanted)
    except Exception as error:
        raise ExportError(f"hf:{path}: no config of a model that transformers knows: {first_line(error)}") from error
    return hugging_face_model(config, options)


def hugging_face_model(config: Any, options: Options) -> tuple[nn.Module, Any]:
    """Returns the model that a config of transformers describes, and example inputs: pixels, or tokens and a mask."""
    transformers = _package("transformers")
    wanted = (options.task,) if options.task else ("sequence-classification", "image-classification")
    task = next((task for task in wanted if type(config) in getattr(transformers, TASKS[task][1])), None)
    if task is None:
        raise ExportError(f"transformers has no {config.model_type} for {' or '.join(wanted)}")
    maker = getattr(transformers, TASKS[task][0])
    if hasattr(config, "use_cache"):
        config.use_cache = False
    try:
        # A config may ask for weights of 16 bits, which export() refuses.
        model = maker.from_config(config).float()
        # The sizes in the other forms of a mixture of experts depend on values. Older versions have no such forms.
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("batched_mm")
    except Exception as error:
        raise ExportError(f"transformers cannot make the {config.model_type}: {first_line(error)}") from error
    if task in _OF_IMAGES:
        return model, {"pixel_values": _images(options, options.size or getattr(config, "image_size", 224))}
    # The samples have no padding, so the attention mask is all ones. Tokens start at 2, because token 0 may mean
    # padding.
    length = options.length or min(128, getattr(config, "max_position_embeddings", 128))
    tokens = torch.randint(2, getattr(config, "vocab_size", 256), (2, length))
    # A language model is trained on full rows of tokens (data.format: TOKENS), which have no mask.
    if task == "causal-lm":
        return model, {"input_ids": tokens}
    return model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def load_function(source: str) -> Callable:
    """Returns the function that MODULE:FUNCTION names."""
    module, _, name = source.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        place = users_line(error.__traceback__)
        raise ExportError(f"{source}: {place + ': ' if place else ''}{first_line(error)}") from error


def _user(module: str, name: str, options: Options) -> tuple[nn.Module, Any]:
    maker = load_function(f"{module}:{name}")
    try:
        made = maker()
    except (Exception, SystemExit) as error:
        place = users_line(error.__traceback__)
        raise ExportError(f"{module}:{name}: {place + ': ' if place else ''}{first_line(error)}") from error
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return made
    if not isinstance(made, nn.Module):
        raise ExportError(f"{module}:{name} returned a {type(made).__name__} where an nn.Module is expected")
    if options.shape is not None:
        return made, torch.randn(2, *options.shape)
    if options.length is not None:
        return made, torch.ones(2, options.length, dtype=torch.int64)
    names = list(inspect.signature(made.forward).parameters)
    if options.size is None:
        raise ExportError(
            f"{module}:{name}: say what {', '.join(names)} looks like: give --size, --shape or --length, or return "
            "(module, inputs)"
        )
    return made, _images(options, options.size)
