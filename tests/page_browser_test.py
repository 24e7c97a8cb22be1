"""Tests the page of runs in a headless Chromium: the content that a reader sees, the URLs that the page requests, and
the messages on its console.

If $PICTURES names a folder, screenshots of the page in each size and colour scheme are kept there.
"""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import urllib.parse

import pytest

import browser as chromium
from browser import DESK, PHONE, Browser
from harness import DONE, Run, digits_config, digits_data, events, path_of, sets, train, write_config
from page_test import served

HOLDOUT = digits_data("validation_fraction: 0.2")
PANELS = ("#progress", "#verdict", "#curve-charts", "#shares-chart", "#verdicts", "#machine-now", "#machine-charts", "#ranks-table",
          "#kernels-table", "#memory-now", "#config-table")  # fmt: skip
# This JavaScript returns the names of the visible charts whose canvas is hidden or has no coloured pixels, but only
# grey axes.
BLANK_CHARTS = """[...document.querySelectorAll('.chart')].filter((chart) => chart.checkVisibility()).filter((chart) => {
    const canvas = chart.querySelector('canvas');
    if (!canvas.checkVisibility()) return true;
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] === 255) {
        const [r, g, b] = pixels.slice(i, i + 3);
        if (Math.max(r, g, b) - Math.min(r, g, b) > 60) colours.add(`${r},${g},${b}`);
      }
    }
    return colours.size === 0;
  }).map((chart) => chart.querySelector('.name').textContent)"""
# This JavaScript returns the visible elements that are cut off: their content is wider than they are and is hidden or has
# to be scrolled, or they lie beyond the screen. (The text of a closed list is never wrapped.)
CUT_OFF = """[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility()).filter((e) => {
    const {left, right} = e.getBoundingClientRect();
    const hides = e.tagName !== 'SELECT' && getComputedStyle(e).overflowX !== 'visible';
    return (hides && e.scrollWidth > e.clientWidth + 1) || right > innerWidth + 1 || left < -1;
  }).map((e) => `${e.tagName} ${e.className} ${e.innerText}`)"""
SLOWER = "aten::addmm takes 0.4 ms a step, and took 0.3 ms in the first profile"


@pytest.fixture(scope="module")
def browser():
    if chromium.program() is None:
        pytest.skip("there is no Chromium: apt-get install chromium (Debian), or install Google Chrome")
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with two runs of two ranks: run a has a profile, to which the message about a slower kernel is
    added, and run b has another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder, digits_config("observe { readings_every_s: 0.05 }", data=HOLDOUT, epochs=150))
    for name, words in (("a", sets("profile.first_step=100")), ("b", sets("optimizer.lr=0.01"))):
        run = train(config, folder / name, *words, ranks=2)
        assert run.status == DONE, run
    summary = folder / "a" / "profiles" / "100" / "summary.json"
    profile = json.loads(summary.read_text())
    summary.write_text(json.dumps(profile | {"slower": [SLOWER]}))
    return folder


def report(path, *runs):
    written = Run(["report", *runs, "--output", path])
    assert written.status == DONE, written
    return path.as_uri()


def expect_quiet(browser, url):
    """Checks that the page has requested nothing from other servers than its own, and that the console has no errors or
    warnings."""
    parts = urllib.parse.urlsplit(url)
    for request in browser.requests():
        asked = urllib.parse.urlsplit(request)
        if asked.scheme != "data":
            assert (asked.scheme, asked.netloc) == (parts.scheme, parts.netloc), request
            assert parts.scheme == "http" or request == url
    assert browser.complaints() == []


def expect_filled(browser):
    """Checks that each panel has text, that only the place for GPUs says why it is empty, and that no chart is
    blank."""
    for panel in PANELS:
        assert len(browser.text(panel)) > 10, panel
    assert browser.evaluate("[...document.querySelectorAll('.empty')].filter((e) => e.checkVisibility()).map((e) => e.innerText)") == [
        "This run trains on CPUs, so there is no GPU to read. The host stands below."
    ]
    assert browser.evaluate(BLANK_CHARTS) == []


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_every_panel_is_filled(browser, folder, size, is_dark):
    browser.show(size, is_dark)
    with served(folder / "a") as url:
        browser.open(url)
        expect_filled(browser)
        last = events(folder / "a", "step")[-1]
        assert f"{last['step']:,}" in browser.text("#progress")
        assert browser.text("#title") == "a"
        assert browser.text("#state") == "done"
        assert SLOWER in browser.text("#kernels-table")
        # Nothing is wider than the screen. On a desk, some elements may scroll on their own.
        assert browser.evaluate("document.documentElement.scrollWidth") <= size[0]
        if size == PHONE:
            browser.evaluate("document.querySelectorAll('details').forEach((all) => { all.open = true; })")
            assert browser.evaluate(CUT_OFF) == []
        background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, background[4:-1].split(", "))) < 200) == is_dark, background
        if pictures := os.environ.get("PICTURES"):
            name = f"{'phone' if size == PHONE else 'desk'}-{'dark' if is_dark else 'light'}"
            browser.picture(pathlib.Path(pictures) / f"{name}.png")
            browser.picture(pathlib.Path(pictures) / f"{name}-top.png", whole=False)
        expect_quiet(browser, url)


def test_a_report_shows_the_same(browser, folder, tmp_path):
    browser.show(DESK)
    url = report(tmp_path / "report.html", folder / "a")
    browser.open(url)
    expect_filled(browser)
    frozen = {panel: browser.text(panel) for panel in PANELS}
    assert browser.text("#updated").startswith("as of ")
    expect_quiet(browser, url)
    with served(folder / "a") as live:
        browser.open(live)
        assert {panel: browser.text(panel) for panel in PANELS} == frozen


def test_several_runs(browser, folder):
    browser.show(DESK)
    with served(folder) as url:
        browser.open(url)
        assert browser.text("#title") == "2 runs"
        assert [line.split("\t")[0] for line in browser.text("#runs-table").splitlines() if line[:2] in ("a", "a\t", "b", "b\t")] == ["a", "b"]
        names = ["a", "b", "a, validation", "b, validation"]
        assert browser.evaluate("charts.loss.lines.map((line) => line.name)") == names
        config = browser.text("#config-table")
        assert "optimizer.lr" in config and "0.003" in config and "0.01" in config
        # A click on the legend hides a run, and another click shows it again.
        browser.evaluate("document.querySelector('#legend button').click()")
        assert browser.evaluate("charts.loss.lines.map((line) => line.name)") == names[1::2]
        browser.evaluate("document.querySelector('#legend button').click()")
        # Run a has a profile, and run b has none.
        assert "aten::addmm" in browser.text("#kernels-table")
        browser.evaluate("document.querySelectorAll('#runs-table tbody tr')[1].click()")
        assert "There is no profile yet" in browser.text("#kernels-table")
        assert browser.evaluate(BLANK_CHARTS) == []
        if pictures := os.environ.get("PICTURES"):
            browser.picture(pathlib.Path(pictures) / "several.png")
        expect_quiet(browser, url)


def test_losses_stand_in_one_chart_before_the_speed(browser, folder):
    browser.show(DESK)
    with served(folder / "a") as url:
        browser.open(url)
        training, validation = browser.evaluate("charts.loss.lines.map(({name, x, mean}) => [name, x, mean])")
        assert training[0] == "Training loss" and validation[0] == "Validation loss"
        evaluations = events(folder / "a", "eval")
        assert validation[1] == [line["step"] for line in evaluations]
        assert validation[2] == pytest.approx([line["val_loss"] for line in evaluations], rel=1e-5)
        titles = browser.evaluate("[...document.querySelectorAll('#curve-charts .name')].map((name) => name.textContent)")
        assert titles[:2] == ["Loss", "Metrics"] and titles.index("Speed (samples/s)") > 1
        assert browser.evaluate("page.metric") != "val_loss"
        tops = [browser.evaluate(f"document.querySelector('{part}').getBoundingClientRect().top") for part in ("#curves", "#verdict", "#machine")]
        assert tops == sorted(tops)


FOLDS = ((0.9, 0.8, 0.85), (0.7, 0.75, 0.8), (0.6, 0.9, 0.7))  # val_auc of three folds after each of three epochs


@pytest.mark.parametrize("keeps_best", [True, False], ids=["best", "last"])
def test_folds_have_a_mean_and_a_deviation(browser, tmp_path, keeps_best):
    for fold, values in enumerate(FOLDS):
        run = tmp_path / "cross" / f"fold-{fold}"
        run.mkdir(parents=True)
        best = 'checkpoint { keep_best: "auc" }' if keeps_best else ""
        (run / "config.pbtxt").write_text(f"data {{ folds {{ count: 3 fold: {fold} }} }} epochs: 3 {best}")
        lines = [{"event": "start", "time": 1, "world_size": 1, "device": "cpu", "steps": 30}]
        for epoch, auc in enumerate(values, 1):
            lines.append({"event": "step", "time": epoch, "step": 10 * epoch, "epoch": epoch, "loss": 1 / epoch})
            lines.append({"event": "eval", "time": epoch, "step": 10 * epoch, "epoch": epoch, "val_loss": 1 - auc, "val_auc": auc})
        (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    browser.show(PHONE)
    url = report(tmp_path / "report.html", tmp_path / "cross")
    browser.open(url)
    kept = [max(values) if keeps_best else values[-1] for values in FOLDS]
    mean, deviation = statistics.mean(kept), statistics.stdev(kept)
    text = browser.text("#folds")
    assert f"{float(f'{mean:.4g}'):g} ± {float(f'{deviation:.2g}'):g}" in text, text
    assert "3 of 3 folds" in text and ("best" if keeps_best else "last") + " evaluation" in text
    assert browser.evaluate(CUT_OFF) == []
    line = browser.evaluate("charts.evaluations.lines.find(({name}) => name === 'mean of 3 folds')")
    for i, values in enumerate(zip(*FOLDS)):
        spread = statistics.stdev(values)
        assert line["mean"][i] == pytest.approx(statistics.mean(values))
        assert line["least"][i] == pytest.approx(line["mean"][i] - spread)
        assert line["greatest"][i] == pytest.approx(line["mean"][i] + spread)
    assert line["x"] == [10, 20, 30]
    expect_quiet(browser, url)


def test_runs_without_folds_have_no_mean(browser, folder):
    browser.show(DESK)
    with served(folder) as url:
        browser.open(url)
        assert not browser.evaluate("document.querySelector('#folds').checkVisibility()")


def test_the_page_follows_a_run(browser, folder, tmp_path):
    browser.show(DESK)
    copy = tmp_path / "run"
    shutil.copytree(folder / "a", copy, ignore=shutil.ignore_patterns("checkpoints", "*.safetensors"))
    with served(copy) as url:
        browser.open(url)
        last = events(copy, "step")[-1]
        with open(copy / "log.jsonl", "a") as log:
            log.write(json.dumps(last | {"step": 123456, "loss": 0.0625}) + "\n")
        browser.wait_until("document.querySelector('#progress').innerText.includes('123,456')")
        assert browser.evaluate("charts.loss.lines[0].mean.at(-1)") == 0.0625
        expect_quiet(browser, url)
    # The server has ended, so the page gets no answer.
    browser.wait_until("document.querySelector('#updated').innerText.startsWith('no answer since')")


def test_a_part_is_shown_as_fine_as_there_is(browser, tmp_path):
    """Checks that zooming in shows the curve in full resolution. The log has 20,000 step lines, more than the whole
    chart shows."""
    run = tmp_path / "run"
    run.mkdir()
    with open(run / "log.jsonl", "w") as log:
        log.write('{"event":"start","time":1000,"steps":20000,"world_size":1,"device":"cpu"}\n')
        for step in range(1, 20001):
            log.write(f'{{"event":"step","time":{1000 + step},"step":{step},"epoch":1,"loss":{1 + step % 7},"lr":0.1}}\n')
    browser.show(DESK)
    with served(run) as url:
        browser.open(url)
        columns = browser.evaluate("charts.loss.lines[0].x.length")
        assert columns <= 1000
        left, top, width, height = browser.evaluate(
            "(({x, y, width, height}) => [x, y, width, height])((document.querySelector('#curves').scrollIntoView(),"
            "charts.loss.area.getBoundingClientRect()))"
        )
        place = lambda share: (left + share * width, top + height / 2)  # noqa: E731
        browser.move(place(0.5))
        browser.wait_until("!charts.loss.tip.hidden")
        assert "1 to 7" in browser.evaluate("charts.loss.tip.innerText")
        browser.drag(place(0.5), place(0.51))
        browser.wait_until("charts.loss.lines[0].x.length < 1000 && !charts.loss.lines[0].least")
        steps = browser.evaluate("charts.loss.lines[0].x")
        assert steps == [*range(steps[0], steps[-1] + 1)] and 100 < len(steps) < 600
        assert browser.evaluate("charts.loss.lines[0].mean") == [1 + step % 7 for step in steps]
        browser.evaluate("document.querySelector('#whole').click()")
        browser.wait_until(f"charts.loss.lines[0].x.length === {columns}")
        expect_quiet(browser, url)


def test_empty_panels_say_why(browser, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").touch()
    browser.show(PHONE)
    url = report(tmp_path / "report.html", run)
    browser.open(url)
    assert "log.jsonl cannot be read: No such file or directory" in browser.text("#progress")
    sentences = {
        "#curve-charts": ["no line of a step yet", "no evaluation yet", "no learning rate", "no gradient norm", "no speed"],
        "#shares-chart": ["no account of the seconds"],
        "#verdicts": ["There is none yet"],
        "#machine-now": ["no reading of the machine"],
        "#ranks-table": ["This run is one process"],
        "#kernels-table": ["There is no profile yet", f"lockstep profile {run}"],
        "#memory-now": ["no line of the memory"],
        "#config-table": ["config.pbtxt cannot be read: No such file or directory"],
    }
    for panel, parts in sentences.items():
        text = browser.text(panel)
        for part in parts:
            assert part in text, (panel, text)
    expect_quiet(browser, url)


def test_an_older_run(browser, tmp_path):
    # The run's folder is copied, because its files in Bazel's runfiles are symbolic links, and those of a real run are
    # not.
    older = shutil.copytree(pathlib.Path(path_of("OLDER_RUN")).parent, tmp_path / "older")
    url = report(tmp_path / "report.html", older)
    browser.show(DESK)
    browser.open(url)
    assert "The log is of a version that kept no account of its seconds" in browser.text("#verdict")
    assert browser.evaluate("charts.loss.lines[0].x") == [1, 10, 20, 30, 40, 50, 60, 69]
    browser.evaluate("document.querySelector('[data-axis=time]').click()")
    assert "choose Step" in browser.text("#curve-charts")
    browser.evaluate("document.querySelector('[data-axis=step]').click()")
    assert browser.evaluate("charts.loss.area.checkVisibility()")
    expect_quiet(browser, url)


ATTACK = "<img src=http://192.0.2.1/x onerror=\"document.title='hacked'\"></script><script>document.title='hacked'</script>"


def test_what_files_hold_stays_text(browser, tmp_path):
    run = tmp_path / "<b>run"
    (run / "profiles" / "1").mkdir(parents=True)
    lines = [
        {"event": "start", "time": 1, "world_size": ATTACK, "device": ATTACK, "version": ATTACK, "steps": 5},
        {"event": "step", "time": 2, "step": 1, "epoch": 1, "loss": 1.5},
        {"event": "eval", "time": 2, "step": 1, "epoch": 1, f"val_{ATTACK}": 0.5},
        {"event": "warning", "time": 3, "reason": ATTACK},
        {"event": "seconds", "time": 4, "step": 1, "wall_s": 5, "ideal_s": 3, "lost_s": {ATTACK: 2}, "verdict": ATTACK, "remedy": ATTACK,
         "findings": [{"words": ATTACK, "remedy": ATTACK}]},
        {"event": "machine", "time": 5, "host": ATTACK, "cpu_use": 0.5, "gpus": [{"index": 0, "name": ATTACK, "use": 1, "throttled_by": [ATTACK]}]},
        {"event": "memory", "time": 5, "owners": {ATTACK: 5}, "phases": ATTACK, "peak_bytes": ATTACK},
        {"event": "failed", "time": 6, "step": 2, "status": 2, "reason": ATTACK},
    ]  # fmt: skip
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.pbtxt").write_text(f"run_dir: {json.dumps(ATTACK)}")
    kernel = {"name": ATTACK, "phase": ATTACK, "module": ATTACK, "share": 1, "ms": ATTACK, "calls": {}, "us": [], "remark": ATTACK}
    summary = {"ranks": [{"rank": 0, "device": ATTACK, "kernels": [kernel, 7]}, 5], "slower": [ATTACK, 3]}
    (run / "profiles" / "1" / "summary.json").write_text(json.dumps(summary))
    browser.show(DESK)
    url = report(tmp_path / "report.html", run)
    browser.open(url)
    assert browser.evaluate("document.title") == "<b>run · Lockstep"
    assert browser.evaluate("document.images.length") == 0
    for panel in ("#progress", "#verdict", "#verdicts", "#machine-now", "#kernels-table", "#memory-now", "#config-table"):
        # The config's printer puts a backslash before quotation marks.
        assert ATTACK in browser.text(panel).replace("\\", ""), panel
    expect_quiet(browser, url)


def test_the_token_goes_with_each_question(browser, folder):
    browser.show(DESK)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(served(folder / "a", "--bind", "0.0.0.0"))
        parts = urllib.parse.urlsplit(url)
        local = parts._replace(netloc=f"127.0.0.1:{parts.port}").geturl()
        browser.open(local)
        assert browser.evaluate("ask('data', {since: -1}).then((data) => data.runs.length)") == 1
        expect_quiet(browser, local)
