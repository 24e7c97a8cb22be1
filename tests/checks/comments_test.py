#!/usr/bin/env python3
"""Checks that no comment begins with 'Of' or 'What', unless it is a question, which ends with a question mark. A
comment must begin with its subject or its verb.

The check reads the comments of C++, CUDA, protobuf, JavaScript and CSS (// and /*) and of Python, Starlark and Bash
(#), and docstrings. If a comment has several paragraphs, the check looks at the beginning of each paragraph. """

import io
import os
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITH_SLASHES = {".h", ".cc", ".cu", ".cuh", ".c", ".inc", ".proto", ".js", ".css"}
WITH_HASHES = {".sh", ".pbtxt", ".yml", ".yaml", ".toml"}
PYTHON = {".py", ".bzl"}
PYTHON_NAMES = {"BUILD", "WORKSPACE"}
REFUSED = re.compile(r"(Of|What) ")


def all_files():
    """Yields the files of the repository, without hidden files, Bazel's folders and the folder runs. Git is not needed.
    """
    for folder, folders, names in os.walk(ROOT):
        top = pathlib.Path(folder) == ROOT
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "bazel-")) and not (top and name == "runs")
        )
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if not name.startswith(".") and not path.is_symlink():
                yield path


def in_slashes(text):
    """Yields (line, column, alone, words) for each line of the comments in `text`. `alone` says whether the comment's
    line has no code before the comment.

    String literals, also raw ones, are skipped.
    """
    pattern = re.compile(
        r'R"([^()\\\s]{0,16})\(.*?\)\1"'  # a raw literal
        r'|"(?:\\.|[^"\\\n])*"'
        r"|`(?:\\.|[^`\\])*`"  # a template literal of JavaScript
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # not the ' in 1'000
        r"|//[^\n]*|/\*.*?\*/",
        re.S,
    )
    for found in pattern.finditer(text):
        if not found[0].startswith(("//", "/*")):
            continue
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - (text.rfind("\n", 0, found.start()) + 1)
        alone = not text[found.start() - column : found.start()].strip()
        if found[0].startswith("//"):
            yield line, column, alone, re.sub(r"^//[/!<]*", "", found[0]).strip()
            continue
        for offset, words in enumerate(found[0][2:-2].split("\n")):
            yield line + offset, column, alone or offset > 0, words.strip().lstrip("*!").strip()


def in_hashes(text):
    """Yields (line, column, alone, words) for each comment of a Bash script, as in_slashes() does. A # after code
    begins a comment only after two spaces."""
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"(\s*)#(?!!)(.*)$", line) or re.match(r"(.*?\S  )# (.*)$", line)
        if found:
            yield number, len(found[1]), not found[1].strip(), found[2].lstrip("#").strip()


def in_python(text):
    """Yields (line, column, alone, words) for each comment and for each line of the docstrings, as in_slashes()
    does."""
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.start
        if token.type == tokenize.COMMENT:
            yield line, column, not token.line[:column].strip(), token.string.lstrip("#!").strip()
            continue
        begins = before in (None, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.STRING and begins and token.string.endswith('"""'):
            for offset, words in enumerate(re.sub(r'^\w*"""|"""$', "", token.string).split("\n")):
                yield line + offset, column, True, words.strip()
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def comments_of(path):
    """Returns an iterator over the lines of the comments in the file `path`, or None if it is not a source file."""
    is_python = path.suffix in PYTHON or path.name in PYTHON_NAMES
    if not (is_python or path.suffix in WITH_SLASHES or path.suffix in WITH_HASHES or path.suffix == ""):
        return None
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return None
    if path.suffix == "" and not is_python:
        first = text.split("\n", 1)[0]
        if not re.match(r"#!.*\b(bash|sh|python3)\b", first):
            return None
        is_python = "python" in first
    if is_python:
        return in_python(text)
    return in_slashes(text) if path.suffix in WITH_SLASHES else in_hashes(text)


def faults_in(comments):
    """Yields (line, words) for each comment, or paragraph of a comment, that begins with a refused word and is not a
    question."""
    last = None  # (line, column) of the last comment line, which the next line may continue
    paragraph = []

    def fault():
        text = " ".join(words for _, words in paragraph)
        end = re.search(r"[.!?](?=\s|$)", text)
        is_question = end is not None and end[0] == "?"
        return paragraph[0] if REFUSED.match(text) and not is_question else None

    for line, column, alone, words in comments:
        goes_on = alone and words and last == (line - 1, column)
        if not goes_on:
            if found := fault():
                yield found
            paragraph = []
        if words:
            paragraph.append((line, words))
        last = (line, column)
    if found := fault():
        yield found


def main():
    files = 0
    faults = []
    for path in all_files():
        comments = comments_of(path)
        if comments is None:
            continue
        files += 1
        faults += [f"{path.relative_to(ROOT)}:{line}: {words}" for line, words in faults_in(comments)]
    if files < 100:
        sys.exit(f"found {files} files in {ROOT}: where are they?")
    if faults:
        print("\n".join(faults))
        sys.exit(
            f"{len(faults)} comments of {files} files begin with 'Of' or 'What': begin with the subject: "
            "'The number of ...', 'Returns the ...', 'Each rank ...'"
        )
    print(f"the comments of {files} files begin with their subject")


if __name__ == "__main__":
    main()
