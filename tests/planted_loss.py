"""Plants causes of lost time in runs for tests, and checks the account that a run gives of its lost time."""

import contextlib
import pathlib

from harness import DIGITS, DONE, events, faulty_model, path_of, train, write_config

FAULTY = pathlib.Path(path_of("FAULTY"))  # absolute, because some processes run in another folder
POINTS = 0.05  # the largest allowed error of a share of the run's time
# If other programs disturb one of the two compared runs, the comparison fails by chance, so it is repeated. A wrong
# account fails each time.
ATTEMPTS = 3
STEPS = 500
COMPUTE_US = 6000  # microseconds for which each training forward of MODEL sleeps, as if it computed

DIGITS_DATA = f'train: "{DIGITS}" csv {{ scale: 0.0625 }}'
MODEL = faulty_model(base_us=COMPUTE_US)


def config(data, model, more="", batch=64, steps=STEPS, validation=0):
    return f"""global_batch: {batch} max_steps: {steps} epochs: 100000 log {{ every_steps: 10 }}
        optimizer {{ type: SGD lr: 0.0001 }} data {{ {data} validation_fraction: {validation} }}
        model {{ {model} }} {more}"""


def own_data(**options):
    return f'format: OWN train: "{DIGITS}" own {{ {faulty_model(**options)} }}'


class Plant:
    """Describes a planted cause of lost time in one severity: the run with the cause, and the same run without it."""

    def __init__(self, cause, planted, clean, remedy, ranks=1, clean_ranks=None, env=None, launcher=(), also=(), points=POINTS):
        self.cause, self.planted, self.clean, self.remedy = cause, planted, clean, remedy
        self.ranks, self.clean_ranks, self.env, self.launcher = ranks, clean_ranks or ranks, env, launcher
        self.points = points
        # Names of further causes for which the clean run loses time. The account of the planted run counts this time
        # under `cause`.
        self.also = also

    def around(self):
        """Returns a context manager that is active while the run with the cause runs."""
        return contextlib.nullcontext()

    def run_with(self, folder):
        """Returns the accounts of the run with the cause."""
        ranks = None if self.ranks == 1 else self.ranks
        with self.around():
            return accounts(folder / "planted", self.planted, ranks=ranks, env=self.env, launcher=self.launcher)

    def run_without(self, folder):
        """Returns the accounts of the run without the cause."""
        ranks = None if self.clean_ranks == 1 else self.clean_ranks
        return accounts(folder / "clean", self.clean, ranks=ranks, launcher=self.launcher)


def accounts(folder, text, words=(), **options):
    """Trains in the new folder `folder`, and returns the run's `seconds` events. The last one covers the whole run."""
    folder.mkdir()
    run = train(write_config(folder, text), folder / "run", *words, program=FAULTY, **options)
    assert run.status == DONE, run
    return events(folder / "run", "seconds")


def wrong_name(plant, planted):
    """Returns what is wrong with the cause that the account names, or "" if nothing is wrong."""
    last = planted[-1]
    first = next((report for report in planted if report["verdict"]), None)
    if first is None:
        return f"no verdict: {last}"
    greatest = max((cause for cause in first["lost_s"] if cause != "other"), key=lambda cause: first["lost_s"][cause])
    sums_up = abs(last["ideal_s"] + sum(last["lost_s"].values()) - last["wall_s"]) < 0.02 * last["wall_s"]
    if greatest == plant.cause and plant.remedy in first["remedy"] and sums_up:
        return ""
    return f"{plant.cause} planted, found: {first['verdict']}: {first['remedy']}: {last}"


def wrong_share(plant, planted, clean):
    """Returns what is wrong with the share of time that the account assigns to the cause, or "" if nothing is wrong."""
    last, clean = planted[-1], clean[-1]

    def step(report, seconds):
        return seconds / report["steps"]

    wanted = 1 - step(clean, clean["wall_s"]) / step(last, last["wall_s"])
    before = sum(step(clean, clean["lost_s"][cause]) for cause in (plant.cause, *plant.also))
    found = last["lost_s"][plant.cause] / last["wall_s"] - before / step(last, last["wall_s"])
    text = f"{plant.cause}: planted {wanted:.3f}, found {found:.3f}: {last['verdict']}: {last['remedy']}"
    print(text)
    return "" if abs(found - wanted) < plant.points else f"{text}\nplanted: {last}\nclean: {clean}"


def mistakes(plant, folder):
    """Returns what is wrong with the account of a planted cause, in its name or its share, or "" if nothing is wrong.
    """
    planted = plant.run_with(folder)
    return wrong_name(plant, planted) or wrong_share(plant, planted, plant.run_without(folder))


def expect_right(make, tmp_path):
    """Checks that one of ATTEMPTS attempts has no mistakes. `make(folder)` makes an attempt, and returns its mistakes,
    or "" if there are none."""
    wrong = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        wrong.append(make(folder))
        if not wrong[-1]:
            return
    raise AssertionError("\n".join(wrong))
