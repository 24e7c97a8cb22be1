"""python -m lockstep.export: exports a model to an .lsm file, or, with --to-torch, converts a run's weights to a state
dict. If the command fails, it prints one line and ends with exit status 2."""

import argparse
import logging
import os
import sys
import warnings

import torch

from lockstep.export import sources, weights
from lockstep.export.api import export
from lockstep.export.errors import ExportError, first_line
from lockstep.export.tensor_file import require_replaceable
from lockstep.export.to_torch import to_torch

_USAGE_ERROR = 2


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.replace("x", ",").split(","))
    if any(size < 1 for size in sizes):
        raise ValueError
    return sizes


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_shape.__name__, _positive.__name__ = "shape", "positive number"


_BY_PYTORCH = "this format is not written yet: PyTorch makes it of the module, for example with torch.onnx.export()"
_BY_THE_PROGRAM = "`lockstep export RUN --output FILE.safetensors` writes a run's weights as safetensors"
_BY_TO_TORCH = "with --to-torch RUN a run's weights are written for torch.load()"
_OTHER_FORMATS = {".safetensors": _BY_THE_PROGRAM, ".pt": _BY_TO_TORCH, ".pth": _BY_TO_TORCH} | dict.fromkeys(
    (".onnx", ".gguf", ".h5", ".keras", ".pb", ".tflite", ".torchscript", ".ts", ".engine", ".mlmodel"), _BY_PYTORCH
)


def _require_name(output: str, to_torch: bool) -> None:
    """Throws ExportError if the name of the output says that the file has another format than the one that is
    written."""
    stem, ending = os.path.splitext(output)
    cure = _OTHER_FORMATS.get(ending.lower())
    if to_torch and cure == _BY_TO_TORCH:
        return
    if cure is not None:
        right = ".pt" if to_torch else ".lsm"
        raise ExportError(f"--output {output}: name it {stem}{right}, as {right} is what is written; {cure}")


def _inputs(options: argparse.Namespace) -> list[str]:
    """Returns the files that the command reads."""
    named = [options.pretrained, options.to_torch, options.model]
    found = [name for name in named if name is not None]
    if options.to_torch is not None:
        found.append(os.path.join(options.to_torch, "weights.safetensors"))
    kind, _, place = (options.model or "").partition(":")
    if place:
        found.append(place if kind == "hf" else kind.replace(".", os.sep) + ".py")
    for folder in (place if kind == "hf" else None, options.pretrained):
        if folder is not None and os.path.isdir(folder):
            # An .lsm file is the output of an earlier call.
            found += [os.path.join(folder, name) for name in os.listdir(folder) if not name.endswith(".lsm")]
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(_USAGE_ERROR, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = _Parser(prog="lockstep.export", description="Writes a PyTorch model to a file that lockstep trains.")
    parser.add_argument(
        "model", nargs="?", help="timm:NAME, torchvision:NAME, hf:FOLDER or MODULE:FUNCTION of this directory"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--size", type=_positive, help="pixels of an image's side")
    parser.add_argument("--channels", type=_positive, default=3, help="channels of an image (default: 3)")
    parser.add_argument("--classes", type=_positive, help="classes, or labels, of the output")
    parser.add_argument("--length", type=_positive, help="tokens of a sample")
    parser.add_argument("--shape", type=_shape, help="shape of one sample, for MODULE:FUNCTION: 3,32,32")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights (default: 0)")
    parser.add_argument(
        "--pretrained",
        metavar="FILE",
        help="weights: safetensors, a state dict of torch.save, the index of such files, or a folder of Hugging Face's",
    )
    parser.add_argument(
        "--replace-head", action="store_true", help="keep as made what that file lacks or has in another shape"
    )
    parser.add_argument("--task", choices=sources.TASKS, help="what an hf: model does (default: it classifies samples)")
    parser.add_argument(
        "--loss", metavar="MODULE:FUNCTION", help="a loss(output, target) for classes instead of the task's"
    )
    parser.add_argument(
        "--to-torch",
        metavar="RUN",
        help="write the weights of this run for torch.load(); name the .lsm file too if its module has tied tensors",
    )
    options = parser.parse_args(arguments)
    if options.to_torch is None and options.model is None:
        parser.error("name a model, or a run with --to-torch")
    if options.to_torch is not None and options.loss is not None:
        parser.error("--loss is for a model that is written, not for --to-torch")
    about = options.to_torch or options.model
    try:
        _require_name(options.output, options.to_torch is not None)
        require_replaceable(options.output, _inputs(options))
        if options.to_torch is not None:
            count = to_torch(options.to_torch, options.output, options.model)
            print(f"{options.output}: {count} tensors of {options.to_torch}")
            return 0
        torch.manual_seed(options.seed)
        model, inputs = sources.make(
            options.model,
            sources.Options(
                options.size, options.channels, options.classes, options.length, options.shape, options.task
            ),
        )
        loaded = weights.Loaded([], [])
        if options.pretrained is not None:
            loaded = weights.load_pretrained(model, options.pretrained, options.replace_head)
        loss = None if options.loss is None else sources.load_function(options.loss)
        export(model, inputs, options.output, name=options.model, loss=loss)
    except ExportError as error:
        print(f"{parser.prog}: {about}: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a bug in the exporter: the user gets one line here, too
        print(f"{parser.prog}: {about}: cannot be exported: {first_line(error)}", file=sys.stderr)
        return _USAGE_ERROR
    count = sum(parameter.numel() for parameter in model.parameters())
    as_made = f", not from {options.pretrained}: {weights.some(loaded.kept)}" if loaded.kept else ""
    unused = f", not used: {weights.some(loaded.unused)}" if loaded.unused else ""
    size = os.path.getsize(options.output)
    print(f"{options.output}: {options.model}, {count:,} parameters, {size:,} bytes{as_made}{unused}")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    sys.exit(main())
