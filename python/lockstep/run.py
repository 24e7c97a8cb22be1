"""new(), train() and Run: writes a config for data files, trains a config, and reads the results of a run.

Promise: the program does all training, evaluation and prediction, so the numbers are those of the same commands in a
shell. Only the program writes files, except for files in a temporary folder, which is removed.

what can fail -> what the caller sees -> the test that shows it (tests/python_test.py)
  a mistake in the config or an override, wrong files, no best checkpoint -> LockstepError with the program's line
    -> test_an_error_is_one_line
  a folder that is not a run's -> LockstepError -> test_what_is_no_run
  a frame or an array for a run that was trained on another format -> LockstepError -> test_inputs_that_do_not_fit
  a frame or an array that the program refuses -> LockstepError that speaks of the frame or array, and not of the
    temporary file in which the program got it -> test_arrays_as_numpy_has_them (tests/binary_files_test.py)
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import IO, Any

from lockstep.fields import Fields, read_printed
from lockstep.program import DONE, INTERRUPTED, STOPPED, USAGE, LockstepError, run as run_program

_Path = str | os.PathLike


def new(
    data: _Path,
    *,
    label: str | Iterable[str] | None = None,
    test: _Path | None = None,
    task: str | None = None,
    output: _Path = "train.pbtxt",
    progress: bool = True,
) -> pathlib.Path:
    """Writes a config with comments for the files in `data`, as `lockstep new` does, and returns its path.

    Args:
        data: a table, or a folder with a table, images, arrays or tokens.
        label: the column to predict, or several; None: the program chooses it.
        test: the file to predict, if it is not test.csv beside the data.
        task: "classification", "multi_label" or "regression"; None: the program chooses it.
        output: the config to write, which must not exist.
        progress: print what was found, and the next commands.

    Raises LockstepError.

    >>> new(TABLE, label="y", output="mine.pbtxt", progress=False)
    PosixPath('mine.pbtxt')
    """
    labels = [] if label is None else [label] if isinstance(label, str) else list(label)
    words = ["new", os.fspath(data), "--output", os.fspath(output)]
    words += [word for name in labels for word in ("--label", name)]
    words += [] if test is None else ["--test", os.fspath(test)]
    words += [] if task is None else ["--task", task]
    run_program(words, progress=progress)
    return pathlib.Path(output)


def train(
    config: _Path | Mapping[str, Any],
    *,
    folds: int | None = None,
    ranks: int | None = None,
    fresh: bool = False,
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Trains a config, or continues training if its run folder has checkpoints, and returns the run.

    Args:
        config: the path of a config file, or a dict of its fields, which may be nested: {"data": {"train": "a.csv"}}.
            Paths in a dict are relative to the current folder. A dict without run_dir uses the folder runs/train.
        folds: the number of folds of a cross-validation, as for `--folds`. Each fold is a run in Run.folds.
        ranks: how many ranks to start, as `-n` does; None trains in one process.
        fresh: start a new run; an existing run in the run folder is renamed.
        progress: print the program's lines as they come.
        overrides: fields that replace the config's, as `--set` does: epochs=3, optimizer__lr=0.01, or
            optimizer={"lr": 0.01}. Paths are relative to the current folder.

    If the run was asked to stop early (`lockstep stop`, a signal to the program), train() also returns it; calling
    train() again with the same arguments continues the run. An interrupt (Ctrl-C, a notebook's stop button) makes the
    run save a checkpoint and stop after the current step, and then raises KeyboardInterrupt; such a run can be
    continued in the same way. A second interrupt ends the run at once.

    Raises:
        LockstepError: with the error line that the program printed.
        TypeError: for a value that no field of a config can have.

    >>> run = train(DIGITS, epochs=2, run_dir="runs/two", progress=False)
    >>> run
    Run('runs/two')
    >>> run = train(DIGITS, folds=3, epochs=2, run_dir="runs/three", progress=False)
    >>> run.folds[2]
    Run('runs/three/fold-2')
    """
    fields = Fields()
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        if isinstance(config, Mapping):
            fields.add(config)
            path = os.path.join(folder, "train.pbtxt")  # the default run folder has the name of this file
        else:
            path = os.fspath(config)
        file_text = fields.text
        fields.add(overrides)
        if fields.text != file_text and not isinstance(config, Mapping):
            raise TypeError("blocks and options can be given in a config alone, and not in place of a file's")
        if isinstance(config, Mapping):
            pathlib.Path(path).write_text(fields.text)
        printed = run_program(["config", path, *fields.words]).output
        start = [] if ranks is None else ["-n", str(ranks)]
        words = [*start, "train", path, *(["--fresh"] if fresh else []), *fields.words]
        words += [] if folds is None else ["--folds", str(folds)]
        run_program(words, progress=progress, accepted=(DONE, STOPPED, INTERRUPTED))
    return Run(read_printed(printed)["run_dir"])


class Run:
    """A run's folder, or one of its checkpoints: "runs/train", "runs/train@best", "runs/train@120". A Run may also be
    the folder of a cross-validation: its metrics and its predictions are then the means over the folds.

    Raises LockstepError if no run has written to the folder.

    >>> run = Run("runs/train")
    >>> run.folder, run.best
    (PosixPath('runs/train'), Run('runs/train@best'))
    """

    def __init__(self, run: _Path):
        self.point = os.fspath(run)
        match = re.fullmatch(r"(.+)@(?:best|last|\d+)", self.point)
        self.folder = pathlib.Path(match[1] if match else self.point)
        self._at = self.point[len(match[1]) :] if match else ""
        if not self.folds and not _has_config(self.folder):
            raise LockstepError(f"{self.folder}: no run's folder: it has no config.pbtxt", USAGE)

    def __repr__(self) -> str:
        return f"Run({self.point!r})"

    @property
    def best(self) -> Run:
        """Returns the run's best checkpoint, which the program keeps if the config sets checkpoint.keep_best or
        early_stopping."""
        return Run(f"{self.folder}@best")

    @property
    def folds(self) -> list[Run]:
        """Returns the runs of the folds of a cross-validation, in order; an empty list for any other run."""
        first = self.folder / "fold-0"
        if _has_config(self.folder) or not _has_config(first):
            return []
        count = int(read_printed((first / "config.pbtxt").read_text(encoding="utf-8"))["data"]["folds"]["count"])
        folders = [self.folder / f"fold-{number}" for number in range(count)]
        return [Run(f"{folder}{self._at}") for folder in folders if _has_config(folder)]

    @property
    def log(self) -> Any:
        """Returns the events that the run has written to log.jsonl so far: a data frame with a row for each event if
        pandas is installed, otherwise a list of dicts. For a cross-validation, returns the events of all folds, with
        the number of the fold in `fold`. Raises LockstepError if there is no log.

        >>> log = Run("runs/train").log
        >>> bool(log[log.event == "eval"].val_accuracy.iloc[-1] > 0.9)
        True
        """
        folds = self.folds
        if folds:
            events = [{"fold": i, **event} for i, fold in enumerate(folds) for event in _events(fold.folder)]
        else:
            events = _events(self.folder)
        pandas = _pandas()
        return events if pandas is None else pandas.DataFrame(events)

    def evaluate(
        self,
        files: _Path | Iterable[_Path] | None = None,
        *,
        weights: _Path | None = None,
        ranks: int | None = None,
    ) -> dict[str, Any]:
        """Returns the metrics of the run's weights on `files`, or on the samples that the run held back: loss, accuracy
        and others under their names in log.jsonl without val_, and `samples`, the number of samples. A metric that is
        not defined for these samples is None. `weights` says which checkpoint was used; it is "" for the run's final
        weights. The argument `weights` is a safetensors file to use instead of the run's weights, as `--weights` is.

        For a cross-validation, the metrics are means over the folds, `deviations` holds their sample standard
        deviations, and `folds` holds the metrics of each fold.

        Raises LockstepError.

        >>> metrics = Run("runs/train").evaluate()
        >>> metrics["samples"], bool(metrics["accuracy"] > 0.9)
        (360, True)
        """
        words = [*_start(ranks), "evaluate", self.point, "--json", *_weights(weights)]
        if files is not None:
            words += ["--input", *_paths(files)]
        return json.loads(run_program(words).output)

    def predict(
        self,
        inputs: Any,
        *,
        ranks: int | None = None,
        probabilities: bool = False,
        submission: _Path | None = None,
        output: _Path | None = None,
        weights: _Path | None = None,
    ) -> Any:
        """Returns the predictions for `inputs`: a row for each sample, in the order of the samples.

        Args:
            inputs: one or several paths of files in the format that the run was trained on; or a pandas data frame, for
                runs trained on CSV; or a NumPy array, for runs trained on NPY (the inputs) or on CSV without a header
                (a row for each sample). Labels are not needed.
            ranks: how many ranks to start; None predicts in one process.
            probabilities: for classes, whether to return a column with the probability of each class.
            submission: a competition's sample submission. The result then has the submission's columns, ids and order.
            output: a CSV file to write, for example to submit it; for masks a .npy file. An existing regular file of
                this name is replaced.
            weights: a safetensors file to use instead of the run's weights.

        Returns:
            A data frame if `inputs` is a data frame, otherwise a list of dicts. For classes the columns are `label`, a
            string if classes have names, and `probability`; for several labels or numbers there is one column for each.
            `index` is the sample's number, from 0; for images there is a column `file` instead. A data frame has the
            index of `inputs`, unless the result has the form of a submission. For masks: an array, uint8 [samples,
            height, width].

        Raises LockstepError.

        >>> run = Run("runs/train")
        >>> run.predict(DIGITS_CSV)[0]["label"]
        0
        >>> frame = pandas.read_csv(DIGITS_CSV, header=None).drop(columns=64)
        >>> run.predict(frame).label.head(3).tolist()
        [0, 1, 2]
        >>> len(run.predict(frame, probabilities=True).columns)
        12
        """
        first = next(iter(self.folds), self)
        data = read_printed((first.folder / "config.pbtxt").read_text(encoding="utf-8"))["data"]
        pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
        frame = inputs if pandas is not None and isinstance(inputs, pandas.DataFrame) else None
        is_array = numpy is not None and isinstance(inputs, numpy.ndarray)
        has_masks = data.get("task") == "SEGMENTATION"
        with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
            form = "npy" if has_masks else "jsonl" if submission is None and output is None else "csv"
            path = os.path.join(folder, f"predictions.{form}") if output is None else os.fspath(output)
            if frame is not None:
                files = [self._write_frame(frame, data, folder)]
            elif is_array:
                files = [self._write_array(inputs, data, folder)]
            else:
                files = _paths(inputs)
            words = [*_start(ranks), "predict", self.point, "--input", *files, "--output", path, "--format", form]
            words += ["--probabilities"] if probabilities else []
            words += _weights(weights)
            words += [] if submission is None else ["--submission", os.fspath(submission)]
            given = "the frame" if frame is not None else "the array" if is_array else None
            run_program(words, names={} if given is None else {files[0]: given})
            if has_masks:
                import numpy

                return numpy.load(path)
            rows = _rows(path, form)
        if frame is None:
            return rows
        assert pandas is not None
        return pandas.DataFrame(rows, index=frame.index if submission is None else None)

    def held_back(
        self, *, ranks: int | None = None, probabilities: bool = False, weights: _Path | None = None
    ) -> Any:
        """Returns the predictions for the samples that training held back. In a cross-validation each sample is
        predicted by the fold that was not trained on it; `fold` is the number of this fold. The result is a data frame
        if pandas is installed, otherwise a list of dicts, as predict() returns them. `weights` is as for
        predict(). Raises LockstepError.

        >>> run = train(DIGITS, folds=3, epochs=2, run_dir="runs/three", progress=False)
        >>> len(run.held_back())
        1797
        """
        with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
            path = os.path.join(folder, "predictions.jsonl")
            words = [*_start(ranks), "predict", self.point, "--held-back", "--output", path, *_weights(weights)]
            run_program(words + (["--probabilities"] if probabilities else []))
            rows = _rows(path, "jsonl")
        pandas = _pandas()
        return rows if pandas is None else pandas.DataFrame(rows)

    def _write_frame(self, frame: Any, data: Mapping[str, Any], folder: str) -> str:
        if data["format"] != "CSV":
            what = f"{self.folder} learnt from {data['format']}"
            raise LockstepError(f"{what}: a data frame is for CSV; give paths", USAGE)
        path = os.path.join(folder, "inputs.csv")
        table = data["csv"]
        header = table.get("header", False)
        grouped = _columns_with_groups(table)
        if grouped:
            frame = frame.copy(deep=False)
            for i, name in enumerate(frame.columns):
                if not header or str(name) in grouped:
                    frame.isetitem(i, _without_groups(frame.iloc[:, i]))
        frame.to_csv(path, index=False, header=header, sep=table.get("delimiter", ","))
        return path

    def _write_array(self, array: Any, data: Mapping[str, Any], folder: str) -> str:
        if data["format"] == "NPY":
            import numpy

            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                what = f"the array has the dtype {array.dtype}"
                raise LockstepError(f"{what}: give floats, integers or booleans of up to 64 bits", USAGE)
            path = os.path.join(folder, "inputs.npy")
            numpy.save(path, array)
            return path
        table = data.get("csv", {})
        if data["format"] != "CSV" or table.get("header", False) or array.ndim != 2:
            raise LockstepError(
                f"{self.folder} learnt from {data['format']}: an array is for NPY, and of two dimensions for CSV "
                "without a header; give paths, or a data frame for CSV",
                USAGE,
            )
        path = os.path.join(folder, "inputs.csv")
        is_narrow = array.dtype.kind == "f" and array.dtype.itemsize < 8
        grouped = _columns_with_groups(table)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=table.get("delimiter", ","))
            for row in array:
                # NumPy writes a number of 32 bits as the shortest text that is this number: 0.1, as in a file.
                cells = row.astype(str).tolist() if is_narrow else row.tolist()
                writer.writerow(map(_with_exponent, cells) if grouped else cells)
        return path


def _columns_with_groups(table: Mapping[str, Any]) -> list[str]:
    """Returns the names of the columns of numbers in which the run reads 1.281 as 1281, because points separate groups
    of digits there; without a header, names are empty."""
    columns = table.get("column", [])
    columns = columns if isinstance(columns, list) else [columns]
    return [column.get("name", "") for column in columns if column.get("decimal") == "COMMA_AND_POINTS"]


def _with_exponent(number: Any) -> str:
    """Returns the text of a number, with an exponent if it has a point: such a number has no groups."""
    text = str(number)
    return text + "e0" if re.fullmatch(r"-?\d+\.\d+", text) else text


def _without_groups(column: Any) -> Any:
    """Returns a column of a data frame whose numbers are written so that they are read as numbers without groups. Texts
    stay as they are: a person may have written groups into them."""
    if getattr(column.dtype, "kind", "") == "f":
        return column.astype(str).map(_with_exponent)  # as str, 0.1 of 32 bits stays 0.1
    return column.astype(object).map(lambda value: _with_exponent(value) if isinstance(value, Number) else value)


def _has_config(folder: pathlib.Path) -> bool:
    return (folder / "config.pbtxt").is_file()


def _events(folder: pathlib.Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LockstepError(f"{path}: {error.strerror}", USAGE) from error
    # The program may still be writing the last line. str.splitlines() would also split at other characters, such as
    # U+2028, which a line may contain.
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _start(ranks: int | None) -> list[str]:
    return [] if ranks is None else ["-n", str(ranks)]


def _weights(weights: _Path | None) -> list[str]:
    return [] if weights is None else ["--weights", os.path.abspath(weights)]


def _paths(files: _Path | Iterable[_Path]) -> list[str]:
    several = [files] if isinstance(files, (str, os.PathLike)) else files
    return [os.path.abspath(path) for path in several]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        return None
    return pandas


def _rows(path: str, form: str) -> list[dict[str, Any]]:
    with open(path, newline="", encoding="utf-8") as file:
        if form == "jsonl":
            return [json.loads(line) for line in file]
        rows = csv.DictReader(file, delimiter=_delimiter(file))
        return [{name: _cell(text) for name, text in row.items()} for row in rows]


def _delimiter(file: IO[str]) -> str:
    """Returns the delimiter of a submission, which is that of the sample submission: the one with which the first rows
    have the most cells, as many in each row."""
    first = list(itertools.islice(file, 50))
    file.seek(0)

    def cells(delimiter: str) -> int:
        widths = {len(row) for row in csv.reader(first, delimiter=delimiter)}
        return widths.pop() if len(widths) == 1 else 0

    return max(",;\t|", key=cells)


def _cell(text: str) -> int | float | str:
    """Returns a number if the text is a number in JSON, or one with a decimal comma, otherwise the text; "007" stays a
    text."""
    if re.fullmatch(r"-?(0|[1-9]\d*),\d+([eE][-+]?\d+)?", text):
        text = text.replace(",", ".")
    return json.loads(text) if re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", text) else text
