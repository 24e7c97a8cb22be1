"""Tests that all who name the best evaluation of a run name the same one: of equal values the first, and never NaN; and
that a run that goes on with another metric judges itself by this metric alone."""

import json
import re
import shutil

import pytest

from harness import DONE, Run, digits_data, events, lines_of, sets, train, write_config

# The weights do not change, so that all evaluations are equal.
STILL = f"""{digits_data("validation_fraction: 0.2")} model {{ name: "mlp" mlp {{ hidden: 4 }} }} global_batch: 128
    optimizer {{ type: SGD lr: 1e-30 }} epochs: 4"""


@pytest.fixture(scope="module", params=["loss", "macro_f1"])
def still(request, tmp_path_factory):
    """Returns (metric, run folder, step of the first evaluation) of a run whose evaluations are equal."""
    folder = tmp_path_factory.mktemp(request.param)
    text = f'{STILL} checkpoint {{ keep: 2 keep_best: "{request.param}" }}'
    run = train(write_config(folder, text), folder / "run")
    assert run.status == DONE, run
    evaluated = events(folder / "run", "eval")
    assert len({e[f"val_{request.param}"] for e in evaluated}) == 1
    return request.param, folder / "run", evaluated[0]["step"]


def by_runs(folder):
    (line,) = lines_of(Run(["runs", folder.parent, "--json"]).out)
    return json.loads(line)["best_step"]


def by_watch(folder):
    return int(re.search(r"best +\S+ \S+ at step (\d+)", Run(["watch", folder, "--once"]).out)[1])


def by_compare(folder):
    other = folder.with_name("other")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    compared = json.loads(Run(["compare", folder, other, "--json"]).out)["metrics"]
    shutil.rmtree(other)
    metric = events(folder, "eval")[0]
    ((step, same),) = {tuple(compared[name]["best_step"]) for name in metric if name.startswith("val_")}
    assert step == same
    return step


def by_report(folder):
    page = folder.with_name("report.html")
    assert Run(["report", folder, "--output", page]).status == DONE
    return int(re.search(r'"best":\{"metric":"[^"]*","value":[^,]*,"step":(\d+)\}', page.read_text())[1])


def by_checkpoints(folder):
    (line,) = [line for line in lines_of(Run(["checkpoints", folder]).out) if "  best " in line]
    return int(line.split()[1])


def by_name(folder):
    return int(re.search(r"step-(\d+), the best", Run(["evaluate", f"{folder}@best"]).out)[1])


@pytest.mark.all_tier("a loss is compared with the other sign", unless=lambda still: still == "macro_f1")
@pytest.mark.parametrize("by", [by_runs, by_watch, by_compare, by_report, by_checkpoints, by_name])
def test_the_first_of_equal_values_is_the_best(still, by):
    _, folder, first = still
    assert by(folder) == first


@pytest.mark.parametrize(
    "then, now, says",
    [
        ("loss", "accuracy", True),
        ("accuracy", "loss", True),
        ("accuracy", "accuracy", False),
    ],
)
@pytest.mark.all_tier("the two metrics change places", unless=lambda then: then == "accuracy")
def test_another_metric_begins_anew(tmp_path, then, now, says):
    """Tests a run that was to end after the fourth evaluation without a better one: it ends there if it goes on with
    the same metric, and three evaluations later with another one."""
    text = STILL.replace("epochs: 4", "epochs: 12") + " early_stopping { patience: 5 }"
    config = write_config(tmp_path, text)
    run_dir = tmp_path / "run"
    run = train(config, run_dir, *sets(f"early_stopping.metric={then}", "epochs=4"))
    assert run.status == DONE, run
    run = train(config, run_dir, *sets(f"early_stopping.metric={now}"))
    assert run.status == DONE, run
    told = [e["reason"] for e in events(run_dir, "warning") if "counted anew" in e["reason"]]
    assert len(told) == says
    assert all(f"early_stopping.metric is {now} where it was {then}" in line for line in told)
    first = 5 if says else 1
    assert len(events(run_dir, "eval")) == first + 5
    assert f"{now} has not become better since epoch {first} " in events(run_dir, "done")[-1]["early"]


@pytest.mark.parametrize(
    "other, says",
    [
        ("seed=7", "is of other validation samples"),
        ("loss.type=FOCAL", "is by another loss"),
        ("global_batch=64", None),
    ],
)
@pytest.mark.all_tier("unit tests ask which evaluations count")
def test_a_run_from_another_judges_by_its_own_samples_and_loss(tmp_path, other, says):
    """Tests a run that goes on from another one, four evaluations of which were without a better one: it ends after its
    own first one and five more if these cannot be compared with those of the other run, and otherwise three earlier."""
    config = write_config(tmp_path, STILL.replace("epochs: 4", "epochs: 12") + " early_stopping { patience: 5 }")
    assert train(config, tmp_path / "run", *sets("epochs=4", "early_stopping.metric=loss")).status == DONE
    words = ["--from", f"{tmp_path}/run@last", *sets("early_stopping.metric=loss", "epochs=30", other)]
    run = train(config, tmp_path / "other", *words)
    assert run.status == DONE, run
    told = [e["reason"] for e in events(tmp_path / "other", "warning") if "counted anew" in e["reason"]]
    assert len(told) == (says is not None) and all(f"early_stopping.metric loss {says}: " in line for line in told), told
    assert len(events(tmp_path / "other", "eval")) == (6 if says else 2)
