"""Tests `lockstep help` with its examples, and `lockstep completion` in real shells: the completions are the commands
and options in the program's own help."""

import re
import shlex
import shutil
import subprocess

import pytest

from harness import DONE, LOCKSTEP, USAGE, Run, expect_error, path_of

OWN_MODEL = path_of("OWN_MODEL")

GROUPS = ("bench", "prepare")  # commands that have subcommands
SOME = (["train"], ["slurm"], ["kubernetes"], ["completion"], ["bench", "step"])


def commands_of(*words):
    """Returns the subcommands that the help of the command `words` lists; without words, the program's commands."""
    shown = Run([*words, "--help"])
    assert shown.status == DONE, shown
    _, _, listed = shown.out.partition("\nSubcommands:\n")
    return re.findall(r"(?m)^  ([a-z][a-z-]*)\s", listed.partition("\n\n")[0])


def options_of(*words):
    """Returns the options that the help of the command `words` lists, without those that occur only in its examples."""
    shown = Run([*words, "--help"]).out.partition("\nExamples:\n")[0]
    return {name for names in re.findall(r"(?m)^  (-\S+)", shown) for name in re.findall(r"--?[a-z][a-z-]*", names)}


def all_commands():
    """Returns the words of each command, without the commands that only have subcommands."""
    found = [[name] for name in commands_of() if name not in GROUPS]
    found += [[name, word] for name in GROUPS for word in commands_of(name)]
    assert all(words in found for words in SOME) and len(found) > 30
    return found


@pytest.fixture(scope="module")
def known():
    """Returns two dicts whose keys are the words of a command. The values are the names that the command's help lists:
    those of the subcommands in the first dict, and those of the options in the second."""
    commands = {words: set(commands_of(*words)) for words in ((), ("bench",))}
    return commands, {words: options_of(*words) for words in ((), ("train",), ("bench", "step"))}


def test_help_is_that_of_the_command():
    assert Run(["help"]).out == Run(["--help"]).out
    for words in [["train"], ["bench", "step"], ["prepare"]]:
        assert Run(["help", *words]).out == Run([*words, "--help"]).out


def test_help_of_what_is_no_command():
    expect_error(Run(["help", "trian"]), USAGE, 'no command "trian"; did you mean "train"?')
    expect_error(Run(["help", "bench", "stop"]), USAGE, 'no command "stop"; did you mean "step"?')
    expect_error(Run(["help", "train", "twice"]), USAGE, "train has no commands of its own")


@pytest.mark.parametrize("part", ["some", "all"])
@pytest.mark.all_tier("it starts the program a hundred times", unless=lambda part: part == "some")
def test_every_example_can_be_parsed(part):
    """Appends an option that does not exist to each example, and checks that the program complains about this option
    only."""
    for words in SOME if part == "some" else all_commands():
        shown = Run(["help", *words]).out
        examples = re.findall(r"(?m)^  # (.+)\n  \$ lockstep (.+)$", shown)
        assert 2 <= len(examples) <= 3, shown
        for _, line in examples:
            arguments = shlex.split(line.partition(" >")[0])
            assert [word for word in arguments if word in words][: len(words)] == words, line
            run = Run([*arguments, "--no-such-option"])
            expect_error(run, USAGE, '"--no-such-option" is not expected')


def script_of(shell, folder, program=LOCKSTEP):
    run = Run(["completion", shell], program=program)
    assert run.status == DONE, run
    path = folder / f"completion.{shell}"
    path.write_text(run.out)
    return path


def needs(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}, which is not installed")


def in_bash(script, *words):
    """Returns the completions that bash offers for the last of `words`. Calls the completion function of `lockstep` as
    readline does."""
    text = """
        source "$1"; shift
        complete -p lockstep >&2
        COMP_WORDS=(lockstep "$@") COMP_CWORD=$# COMPREPLY=()
        _lockstep lockstep "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", text, "bash", script, *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "complete -o bashdefault -o default -F _lockstep lockstep\n", done
    return set(done.stdout.split())


def in_zsh(script, *words):
    """Returns the completions that zsh offers for the last of `words`. Calls the completion function with zsh's helper
    functions replaced by functions that print."""
    text = """
        autoload -Uz compinit && compinit -u -D
        source "$1"; shift
        [[ $_comps[lockstep] == _lockstep ]] || exit 1
        _describe() { print -rl -- ${${(P)@[-1]}%%:*} }
        compadd() { shift; print -rl -- $@ }
        _files() { }
        words=(lockstep "$@") CURRENT=$#words
        _lockstep
    """
    done = subprocess.run(["zsh", "-f", "-c", text, "zsh", script, *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    return {word for word in done.stdout.split() if word.startswith(words[-1])}


def in_fish(script, *words):
    """Returns the completions that fish offers for the last of `words`, as `complete -C` prints them. fish offers file
    names as well, but the current folder is empty."""
    text = "source $argv[1]; complete -C $argv[2]"
    words = ["fish", "--no-config", "-c", text, script, shlex.join(["lockstep", *words[:-1]]) + " " + words[-1]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=script.parent / "empty")
    assert done.returncode == 0 and done.stderr == "", done
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell,offered", [("bash", in_bash), ("zsh", in_zsh), ("fish", in_fish)])
def test_a_shell_completes(shell, offered, known, tmp_path):
    needs(shell)
    (tmp_path / "empty").mkdir()
    script = script_of(shell, tmp_path)
    commands, options = known
    root, names = options[()], commands[()]
    assert offered(script, "") == names
    assert offered(script, "tr") == {"train"}
    # The value of an option before the command, such as `bench` for --hosts, is not taken for the command.
    assert offered(script, "-n", "2", "--hosts", "bench", "") == names
    assert offered(script, "--ela") == {"--elastic"}
    assert offered(script, "bench", "") == commands[("bench",)]
    assert offered(script, "help", "") == names
    assert offered(script, "completion", "") == {"bash", "zsh", "fish"}
    assert offered(script, "export", "--dtype", "") == {"float32", "bfloat16", "float16"}
    for words in (["train"], ["-n", "2", "train", "a.pbtxt"], ["bench", "step"], ["bench", "step", "a.pbtxt"]):
        command = [word for word in words if word in ("train", "bench", "step")]
        wanted = {name for name in options[tuple(command)] | root if name.startswith("--")}
        assert offered(script, *words, "--") == wanted, words
        assert offered(script, *words, "") == set()


def test_a_program_with_its_own_model_completes_its_own_name(tmp_path):
    script = script_of("bash", tmp_path, program=OWN_MODEL)
    done = subprocess.run(["bash", "-c", f"source {script}; complete -p"], capture_output=True, text=True)
    assert done.stdout.endswith("complete -o bashdefault -o default -F _tiny_net tiny_net\n"), done


def test_another_shell_is_refused():
    expect_error(Run(["completion", "tcsh"]), USAGE, "tcsh not in {bash,zsh,fish}")
