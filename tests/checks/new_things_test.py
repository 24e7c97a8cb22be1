#!/usr/bin/env python3
"""Checks that a new command or a new data format needs only one new file, one line in a list, and the other changes
that the table in CONTRIBUTING.md, 'Where a new thing goes', lists. The test makes these changes in a copy of the
repository, builds the copy, and uses the new command and the new format.

The build results of the copy are kept in .lockstep/new_things for the next run of the test. The build also uses the
cache of this repository's builds.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

COMMAND = """// lockstep hello: greets somebody.
#include "base/say.h"
#include "launch/cli/command/commands.h"

namespace lockstep {
namespace {

class HelloCommand final : public LocalCommand {
 public:
  explicit HelloCommand(CLI::App& app) : LocalCommand(app, "hello", "greet somebody") {
    options().Add("NAME", name_, "whom").Required();
  }

 private:
  ExitStatus RunHere(const Invocation&) override {
    Print("hello {}\\n", name_);
    return ExitStatus::kDone;
  }

  std::string name_;
};

}  // namespace

std::unique_ptr<Command> NewHelloCommand(CLI::App& app) {
  return std::make_unique<HelloCommand>(app);
}

}  // namespace lockstep
"""

FORMAT = """// Points: a line "x y class" each.
#include <sstream>

#include "base/error.h"
#include "data/dataset/in_memory.h"
#include "config/formats/format.h"

namespace lockstep {
namespace {

class Points : public Format {
 public:
  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    std::vector<float> inputs;
    std::vector<int64_t> targets;
    for (const std::string& path : request.files) {
      std::istringstream text(ReadWholeFile(path));
      float x = 0;
      float y = 0;
      int64_t label = 0;
      while (text >> x >> y >> label) {
        inputs.insert(inputs.end(), {x, y});
        targets.push_back(label);
      }
      if (!text.eof()) throw DataError("{}: line {} is no point", path, targets.size() + 1);
    }
    return MakeInMemory({.shape = {2}, .classes = 2}, BytesOf(inputs), BytesOf(targets));
  }
};

}  // namespace

std::unique_ptr<const Format> NewPoints() { return std::make_unique<Points>(); }

}  // namespace lockstep
"""

TRAINING = """data { format: POINTS train: "points.txt" validation_fraction: 0.2 }
model { name: "mlp" mlp { hidden: 32 } } optimizer { type: ADAM lr: 0.01 } epochs: 60 run_dir: "run"
"""

BUILD = "launch/cli/machine/BUILD"
UNIT = """unit(
    name = "hello",
    deps = [
        "//base:say",
        "//launch/cli/command:commands",
    ],
)
"""

# For each new thing: the new file, its text, and a tuple for each insertion into an existing file: that file, the lines
# to insert, and the line before which they are inserted.
NEW_THINGS = {
    "a command": (
        "launch/cli/machine/hello.cc",
        COMMAND,
        [
            ("launch/cli/command/commands.inc", "COMMAND(Hello)\n", "COMMAND(Version)"),
            (BUILD, '        ":hello",\n', '        ":probe_gpu"'),
            (BUILD, UNIT, "# This target contains the commands of this folder"),
        ],
    ),
    "a format": (
        "config/formats/points.cc",
        FORMAT,
        [
            ("config/formats/formats.inc", "FORMAT(POINTS, Points)\n", "FORMAT(SYNTHETIC,"),
            (
                "config/schema/data.proto",
                "    POINTS = 100;\n",
                "    // A data set that the program itself defines",
            ),
        ],
    ),
}


def run(*words, cwd):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)


def must(*words, cwd):
    """Runs the command `words`, which must succeed, and returns the command's standard output."""
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def copied(folder):
    """Copies the repository's files, with uncommitted changes, into a new repository with one commit."""
    files = must("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in files:
        if not name or not (ROOT / name).is_file():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / ".lockstep").mkdir()
    bazelrc = ROOT / ".lockstep/bazelrc"
    if bazelrc.exists():
        (folder / ".lockstep/bazelrc").write_bytes(bazelrc.read_bytes())
    must("git", "init", "-q", cwd=folder)
    must("git", "add", "-A", cwd=folder)
    commit(folder, "all")


def commit(folder, message):
    must("git", "-c", "user.name=test", "-c", "user.email=test", "commit", "-qm", message, cwd=folder)


def add(folder, listing, text, before):
    lines = (folder / listing).read_text().splitlines(keepends=True)
    places = [number for number, content in enumerate(lines) if content.startswith(before)]
    assert len(places) == 1, f"{listing}: {before!r} begins {len(places)} lines"
    lines.insert(places[0], text)
    (folder / listing).write_text("".join(lines))


def touched(folder):
    """Returns, for each file that has changed since the last commit, how many lines were added and removed."""
    must("git", "add", "-A", cwd=folder)
    lines = must("git", "diff", "--cached", "--numstat", cwd=folder).splitlines()
    return {name: (int(added), int(taken)) for added, taken, name in (line.split("\t") for line in lines)}


def main():
    # These variables, which Bazel sets for its tests, would confuse the Bazel that this test starts.
    for name in ("TEST_TMPDIR", "RUNFILES_DIR", "TEST_SRCDIR"):
        os.environ.pop(name, None)
    folder = pathlib.Path(tempfile.mkdtemp())
    copied(folder)
    for what, (file, text, listings) in NEW_THINGS.items():
        (folder / file).write_text(text)
        for listing, lines, before in listings:
            add(folder, listing, lines, before)
        changed = touched(folder)
        assert set(changed) == {file, *(listing for listing, _, _ in listings)}, (what, changed)
        commit(folder, what)
        print(f"{what}: {', '.join(f'{added} lines of {name}' for name, (added, _) in changed.items())}")
    bazel = ["bazel", "--max_idle_secs=5", f"--output_user_root={ROOT}/.lockstep/new_things"]
    must(*bazel, "build", "--symlink_prefix=/", "//launch:lockstep", cwd=folder)
    program = must(*bazel, "info", "bazel-bin", cwd=folder).strip() + "/launch/lockstep"

    assert must(program, "hello", "world", cwd=folder) == "hello world\n"
    points = (ROOT / "examples/outside_workspace/points.txt").read_text()
    (folder / "points.txt").write_text(points)
    (folder / "points.pbtxt").write_text(TRAINING)
    trained = must(program, "train", "points.pbtxt", cwd=folder)
    accuracy = float(trained.split("accuracy ")[-1].split()[0])
    # The data are two interleaved half-moons. A straight line can classify only 88 % of them correctly.
    assert accuracy > 0.95, trained
    (folder / "points.txt").write_text(points + "1 2 x\n")
    refused = run(program, "train", "points.pbtxt", "--fresh", cwd=folder)
    assert refused.returncode == 3 and "no point" in refused.stderr, refused
    refused = run(program, "train", "points.pbtxt", "--set", "data.csv.header=false", cwd=folder)
    assert refused.returncode == 2 and "has no meaning for format POINTS" in refused.stderr, refused
    print("both were built, and work")


if __name__ == "__main__":
    sys.exit(main())
