"""Tests which files of a data set count, by their names: hidden files and folders, links, and the names that an image, its
label and its mask share. A folder, a tar archive of the folder, `lockstep prepare` and `lockstep new` must agree.

The right answers are those of torchvision's ImageFolder on the folder without hidden names, of Python's tarfile, which
follows links, and of WebDataset's rule for keys. The program data_print answers for all cases of a table in one process.
"""

import io
import os
import pathlib
import re
import subprocess
import tarfile

import numpy as np
import pytest

from data_answers import answers
from harness import DATA, DONE, Run, events, predict, train
from labelled_images import photograph, write_images_config

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
SYSTEM_FOLDERS = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"}


def is_hidden(path):
    return any(part.startswith(".") or part in SYSTEM_FOLDERS for part in pathlib.PurePath(path).parts)


def write_tree(folder, files):
    """Writes {path: content}. A content of ("hard" or "symbolic", target) is a link."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        elif content[0] == "hard":
            os.link(folder / content[1], path)
        else:
            path.symlink_to(content[1])


def write_tar(path, members):
    """Writes a tar archive of (name, content) in this order. A content may be a link, as in write_tree."""
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
            else:
                info.type = tarfile.LNKTYPE if content[0] == "hard" else tarfile.SYMTYPE
                info.linkname = content[1]
                tar.addfile(info)


def samples_of(answer):
    """Returns {(class, path, content)} of the images of a data set whose classes have names."""
    assert "error" not in answer, answer
    return {(answer["classes"][label], path, content) for label, path, content in answer["samples"]}


# Names in folders and archives. Each case adds files to PETS; a file whose content is "+" is an image that counts, and
# one whose content is "-" is hidden.
PETS = {"cat/1.jpg": "c1", "cat/deep/2.png": "c2", "dog/1.jpg": "d1"}
NAMES = {
    "nothing": {},
    "checkpoints_of_jupyter": {".ipynb_checkpoints/1-checkpoint.jpg": "-"},
    "checkpoints_in_a_class": {"cat/.ipynb_checkpoints/1-checkpoint.jpg": "-"},
    "checkpoints_deep": {"cat/deep/.ipynb_checkpoints/1-checkpoint.png": "-"},
    "macos_archive": {"__MACOSX/cat/._1.jpg": "-", "__MACOSX/._cat": "-"},
    "macos_archive_of_images": {"__MACOSX/1.jpg": "-"},
    "macos_archive_in_a_class": {"cat/__MACOSX/1.jpg": "-"},
    "apple_double": {"cat/._1.jpg": "-", "dog/._1.jpg": "-"},
    "apple_double_beside": {"._cat.jpg": "-"},
    "finder": {".DS_Store": "-", "cat/.DS_Store": "-"},
    "git": {".git/1.png": "-", ".gitignore": "-"},
    "trash": {".Trash-0/files/1.jpg": "-"},
    "thumbnails": {"cat/.thumbnails/1.jpg": "-"},
    "synology": {"@eaDir/cat/1.jpg": "-"},
    "synology_in_a_class": {"cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg": "-"},
    "windows_bin": {"$RECYCLE.BIN/1.jpg": "-"},
    "windows_index": {"System Volume Information/1.jpg": "-"},
    "linux": {"lost+found/1.jpg": "-"},
    "hidden_image": {"cat/.1.jpg": "-", "cat/.jpg": "-"},
    "hidden_class": {".fox/1.jpg": "-", ".fox/2.jpg": "-"},
    "capitals": {"cat/3.JPG": "+", "dog/2.Png": "+", "dog/3.JPEG": "+"},
    "dots": {"cat/a.b.jpg": "+", "dog/1..jpg": "+", "v1.0/1.jpg": "+"},
    "underscores": {"_cat/1.jpg": "+", "__background__/1.jpg": "+", "cat/__1__.jpg": "+"},
    "names_like_hidden_ones": {"MACOSX/1.jpg": "+", "eaDir/1.jpg": "+", "cat/lost/1.jpg": "+"},
    "spaces": {"big cat/1 .jpg": "+", " dog/ 1.jpg": "+"},
    "other_formats": {"cat/1.gif": "-", "cat/2.TIFF": "-"},
    "other_files": {"cat/notes.txt": "-", "labels.csv": "-", "dog/Thumbs.db": "-"},
}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Returns {case: (its folder, the answers for the folder, the archive of tarfile, and that of the tar program)}."""
    top = tmp_path_factory.mktemp("named")
    requests = []
    for case, files in NAMES.items():
        folder = top / case
        write_tree(folder / "tree", PETS | files)
        with tarfile.open(folder / "tarfile.tar", "w") as tar:
            tar.add(folder / "tree", ".")
        subprocess.run(["tar", "-C", folder / "tree", "-cf", folder / "tar.tar", *os.listdir(folder / "tree")], check=True)
        requests += [{"kind": "images", "files": [str(folder / name)]} for name in ("tree", "tarfile.tar", "tar.tar")]
    found = answers(requests, top)
    return {case: (top / case, found[3 * i : 3 * i + 3]) for i, case in enumerate(NAMES)}


@pytest.mark.parametrize("case", NAMES)
def test_names(named, case):
    folder, found = named[case]
    files = PETS | NAMES[case]
    expected = {(path.split("/")[0], path, content) for path, content in files.items() if content != "-"}
    for answer in found:
        assert samples_of(answer) == expected
        assert answer["classes"] == sorted({name for name, _, _ in expected})
        assert [path for _, path, _ in answer["samples"]] == [path for _, path, _ in found[0]["samples"]]
    # A remark tells of the hidden folders of a folder, and of the images in them if it is an archive.
    hidden = [path for path, content in files.items() if content == "-" and is_hidden(path)]
    images = [path for path in hidden if path.lower().endswith(IMAGES)]
    told = [[line for line in answer["remarks"] if "left out: hidden" in line] for answer in found]
    assert [len(lines) for lines in told] == [1 if images else 0] * 3, found
    if images:
        others = {1: " is ", 2: " and another one are "}.get(len(images), f" and {len(images) - 1} others are ")
        assert told[1][0].startswith(f"tarfile.tar: {min(images)}{others}left out"), told
        assert told[2][0].startswith(f"tar.tar: {min(images)}{others}left out"), told
    others = [path for path, content in files.items() if content == "-" and not is_hidden(path)]
    for answer in found:
        assert sum("left out" in line and "hidden" not in line for line in answer["remarks"]) == bool(others), answer


def test_names_are_image_folders(named):
    """Compares each folder, once its hidden files are removed, with torchvision's ImageFolder."""
    from torchvision.datasets import ImageFolder

    for folder, found in named.values():
        for path in sorted((folder / "tree").rglob("*"), reverse=True):
            if is_hidden(path.relative_to(folder / "tree")):
                path.rmdir() if path.is_dir() else path.unlink()
        oracle = ImageFolder(folder / "tree", is_valid_file=lambda path: path.lower().endswith(IMAGES))
        expected = {(oracle.classes[label], str(pathlib.Path(path).relative_to(folder / "tree"))) for path, label in oracle.samples}
        assert {sample[:2] for sample in samples_of(found[0])} == expected
        assert found[0]["classes"] == oracle.classes


# Links in archives: further members of an archive that holds PETS, and a part of the error if it is refused.
LONG = "n" * 150
LINKS = {
    "hard": ({"cat/3.jpg": ("hard", "cat/1.jpg")}, None),
    "hard_to_another_class": ({"dog/3.jpg": ("hard", "cat/deep/2.png")}, None),
    "symbolic": ({"cat/3.jpg": ("symbolic", "1.jpg")}, None),
    "symbolic_up": ({"cat/3.jpg": ("symbolic", "../dog/1.jpg")}, None),
    "symbolic_roundabout": ({"cat/3.jpg": ("symbolic", "./deep/../../dog/./1.jpg")}, None),
    "symbolic_to_a_later_file": ({"cat/3.jpg": ("symbolic", "4.jpg"), "cat/4.jpg": "c4"}, None),
    "chain": ({"cat/3.jpg": ("symbolic", "4.jpg"), "cat/4.jpg": ("symbolic", "1.jpg")}, None),
    "hard_to_a_symbolic_one": ({"cat/3.jpg": ("symbolic", "1.jpg"), "cat/4.jpg": ("hard", "cat/3.jpg")}, None),
    "long_names": ({f"cat/{LONG}.jpg": "long", f"dog/{LONG}.jpg": ("hard", f"cat/{LONG}.jpg")}, None),
    "long_symbolic": ({f"cat/{LONG}.jpg": "long", "dog/3.jpg": ("symbolic", f"../cat/{LONG}.jpg")}, None),
    "to_a_hidden_file": ({".store/a1b2": "stored", "cat/3.jpg": ("symbolic", "../.store/a1b2")}, None),
    "hidden_link": ({"cat/.3.jpg": ("symbolic", "1.jpg")}, None),
    "text": ({"cat/notes.txt": ("symbolic", "/etc/hostname")}, None),
    "outside": ({"cat/3.jpg": ("symbolic", "/data/3.jpg")}, "cat/3.jpg: a link to /data/3.jpg, which this archive does not hold"),
    "outside_by_dots": ({"cat/3.jpg": ("symbolic", "../../3.jpg")}, "cat/3.jpg: a link to ../../3.jpg, which"),
    "gone": ({"cat/3.jpg": ("symbolic", "9.jpg")}, "cat/3.jpg: a link to 9.jpg, which"),
    "hard_gone": ({"cat/3.jpg": ("hard", "cat/9.jpg")}, "cat/3.jpg: a link to cat/9.jpg, which"),
    "circle": ({"cat/3.jpg": ("symbolic", "4.jpg"), "cat/4.jpg": ("symbolic", "3.jpg")}, "a link to 4.jpg, which"),
    "class": ({"fox": ("symbolic", "dog")}, "fox: a link to dog, a folder: pack what it leads to (tar --dereference)"),
    "class_outside": ({"fox": ("symbolic", "/data/fox")}, "fox: a link to /data/fox, which this archive does not hold"),
    "image_is_a_folder": ({"cat/3.jpg": ("symbolic", "../dog")}, "cat/3.jpg: a link to ../dog, a folder"),
    "folder_in_a_class": ({"cat/more": ("symbolic", "../dog")}, None),
    "folder_outside_in_a_class": ({"cat/more": ("symbolic", "/data/dog")}, None),
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """Returns {case: (path of its archive, answer)}, with the archive in tarfile's GNU format and in its pax format."""
    top = tmp_path_factory.mktemp("linked")
    paths = {}
    for case, (links, _) in LINKS.items():
        for name, kind in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
            paths[case, name] = top / f"{case}-{name}.tar"
            tarfile.DEFAULT_FORMAT, usual = kind, tarfile.DEFAULT_FORMAT
            write_tar(paths[case, name], (PETS | links).items())
            tarfile.DEFAULT_FORMAT = usual
    found = answers([{"kind": "images", "files": [str(path)]} for path in paths.values()], top)
    return {key: (path, answer) for (key, path), answer in zip(paths.items(), found, strict=True)}


@pytest.mark.parametrize("kind", ["gnu", "pax"])
@pytest.mark.parametrize("case", LINKS)
def test_links_in_archives(linked, case, kind):
    path, answer = linked[case, kind]
    links, refusal = LINKS[case]
    if refusal:
        assert answer["status"] == DATA and refusal in answer["error"] and path.name in answer["error"], answer
        return
    expected = set()
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            if member.name.lower().endswith(IMAGES) and not is_hidden(member.name):
                expected.add((member.name.split("/")[0], member.name, tar.extractfile(member).read().decode()))
    assert samples_of(answer) == expected
    told = {"folder": "cat/more is left out: a link to a folder", "text": "cat/notes.txt is left out: not named",
            "hidden": "cat/.3.jpg is left out: hidden"}.get(case.split("_")[0])
    assert len(answer["remarks"]) == bool(told) and all(told in line for line in answer["remarks"]), answer


def test_a_folder_and_the_archive_of_the_tar_program_have_the_same_links(tmp_path):
    files = {"cat/3.jpg": ("hard", "cat/1.jpg"), "cat/4.jpg": ("symbolic", "../dog/1.jpg"), "dog/2.jpg": ("hard", "dog/1.jpg")}
    write_tree(tmp_path / "tree", PETS | files)
    subprocess.run(["tar", "-C", tmp_path / "tree", "-cf", tmp_path / "0.tar", "."], check=True)
    folder, archive = answers([{"kind": "images", "files": [str(tmp_path / name)]} for name in ("tree", "0.tar")], tmp_path)
    assert samples_of(archive) == samples_of(folder) and len(folder["samples"]) == 6


def key_of(path):
    """Returns the key and the extensions of a member, as webdataset 1.0.2 does (webdataset/tariterators.py,
    base_plus_ext; https://github.com/webdataset/webdataset, BSD-3-Clause)."""
    match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", path)
    return (match.group(1), match.group(2)) if match else (None, None)


def test_keys_are_webdatasets():
    """Compares key_of() with stored results of webdataset 1.0.2."""
    assert {path: key_of(path) for path in WEBDATASET_KEYS} == WEBDATASET_KEYS


WEBDATASET_KEYS = {
    "1.jpg": ("1", "jpg"),
    "1.CLS": ("1", "CLS"),
    "scan_2.5_0001.jpg": ("scan_2", "5_0001.jpg"),
    "s/scan_2.5_1.JPG": ("s/scan_2", "5_1.JPG"),
    "v1.0/1.jpg": ("v1.0/1", "jpg"),
    "v1.0/a.b.c": ("v1.0/a", "b.c"),
    "000123.mask.png": ("000123", "mask.png"),
    "a/readme": (None, None),
    ".hidden.jpg": (None, None),
    "1..jpg": ("1", ".jpg"),
    "a b.jpg": ("a b", "jpg"),
}


def numbered(*names, kinds=("jpg", "cls")):
    """Returns the members of samples, whose labels are 0, 1 and 2 in turn."""
    return [(f"{name}.{kind}", f"{i % 3}" if kind.lower() == "cls" else f"image {name}") for i, name in enumerate(names) for kind in kinds]


# Archives with labels as members. Each case is the list of its members, and what must be said: a part of the error
# ("!..."), or a part of each remark.
SCANS = [f"scan_{i:04}" for i in range(24)] + [f"scan_2.5_{i:04}" for i in range(16)]
KEYS = {
    "plain": (numbered("1", "2", "3"), []),
    "capitals": (numbered("1", "2", "3", kinds=("JPG", "CLS")), []),
    "mixed_capitals": (numbered("1", kinds=("Jpg", "cls")) + numbered("2", kinds=("png", "Cls")), []),
    "label_first": (numbered("1", "2", kinds=("cls", "webp")), []),
    "folders": (numbered("a/1", "b/1", "b/c/1"), []),
    "folder_with_a_dot": (numbered("v1.0/1", "v1.5/1"), []),
    "further_members": (numbered("1", "2", kinds=("jpg", "json", "cls", "caption.txt")), []),
    "further_images": (numbered("1", "2", kinds=("jpg", "mask.png", "cls")), ["1.mask.png and another one are left out: a further image"]),
    "further_labels": (numbered("1", "2", kinds=("jpg", "cls", "fine.cls")), []),
    "hidden": (
        [*numbered("1", "2"), ("._1.jpg", "-"), ("._1.cls", "\0"), ("__MACOSX/._2.jpg", "-"), (".ipynb_checkpoints/1.jpg", "-")],
        ["._1.jpg and 2 others are left out: hidden"],
    ),
    "labels_without_images": (numbered("1") + numbered("2", "3", kinds=("cls",)), ["2.cls and another one are left out: a label whose sample has no image"]),
    "another_format": (numbered("1") + numbered("2", kinds=("gif", "cls")), ["2.gif is left out: not JPEG", "2.cls is left out: a label"]),
    "label_is_a_link": ([*numbered("1"), ("2.jpg", "image 2"), ("2.cls", ("hard", "1.cls"))], []),
    "scans": (numbered(*SCANS), ['!scan_2.5_0000.jpg: an image of the sample "scan_2"', "it and 15 other images would be lost", "one dot, such as scan_2_5_0000.jpg"]),
    "scans_alone": (numbered(*SCANS[24:]), ["!it and 15 other images would be lost"]),
    "scans_in_capitals": (numbered(*SCANS, kinds=("JPG", "CLS")), ["!it and 15 other images would be lost"]),
    "scans_in_a_folder": (numbered("s/a.1", "s/b"), ["!s/a.1.jpg: an image of the sample \"s/a\"", "it would be lost", "such as s/a_1.jpg"]),
    "dates": (numbered("2024.01.31-1", "2024.02.01-1"), ["!it and another one would be lost", "such as 2024_01_31-1.jpg"]),
    "a_dot_beside_the_sample": (numbered("1", "1.5"), ["!1.5.jpg: an image of the sample \"1\"", "it would be lost"]),
    "two_dots": (numbered("1."), ["!1..jpg: an image of the sample \"1\""]),
    "views_without_a_plain_image": (numbered("1") + numbered("2", kinds=("left.png", "right.png", "cls")), ["!2.left.png", "it and another one"]),
    "no_label": (numbered("1") + numbered("2", "3", kinds=("jpg",)), ["!2.jpg: no label", "2 of 3 images have none"]),
    "key_in_another_case": ([("A.jpg", "image"), ("a.cls", "1")], ["!A.jpg: no label"]),
    "two_images": (numbered("1", kinds=("jpg", "png", "cls")), ["!1.png: a second image of one sample, beside 1.jpg"]),
    "two_images_in_two_cases": (numbered("1", kinds=("jpg", "JPG", "cls")), ["!1.JPG: a second image of one sample"]),
    "two_labels": (numbered("1", kinds=("jpg", "cls", "CLS")), ["!1.CLS: twice in this archive"]),
    "label_leads_to_nothing": ([*numbered("1"), ("2.jpg", "image"), ("2.cls", ("symbolic", "9.cls"))], ["!2.cls: a link to 9.cls, which"]),
}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    top = tmp_path_factory.mktemp("keyed")
    for case, (members, _) in KEYS.items():
        write_tar(top / f"{case}.TAR", members)
    return dict(zip(KEYS, answers([{"kind": "images", "files": [str(top / f"{case}.TAR")]} for case in KEYS], top), strict=True))


@pytest.mark.parametrize("case", KEYS)
def test_keys_of_samples(keyed, case):
    answer = keyed[case]
    members, said = KEYS[case]
    contents = {name: content if isinstance(content, str) else dict(members).get(content[1]) for name, content in members}
    groups, images = {}, 0
    for name, content in contents.items():
        if is_hidden(name):
            continue
        images += name.lower().endswith(IMAGES)
        key, kind = key_of(name)
        groups.setdefault(key, []).append((kind.lower(), content))
    pairs = set()  # (label, content) of the samples that WebDataset makes of the archive
    for group in groups.values():
        kinds = dict(group)
        image = [kind for kind in kinds if f".{kind}" in IMAGES]
        if len(image) == 1 and kinds.get("cls") is not None and len(kinds) == len(group):
            pairs.add((int(kinds["cls"]), kinds[image[0]]))
    if said and said[0].startswith("!"):
        assert answer["status"] == DATA and f"{case}.TAR: " in answer["error"], answer
        assert all(part.lstrip("!") in answer["error"] for part in said), answer
        assert len(pairs) < images  # WebDataset would not have had all images
        return
    assert {(label, content) for label, _, content in answer["samples"]} == pairs and len(answer["samples"]) == len(pairs)
    told = [line for line in answer["remarks"] if "left out" in line]
    assert len(told) == len(said) and all(f"{case}.TAR: {part}" in line for part, line in zip(sorted(said), sorted(told), strict=True)), answer


# Masks: {path below the folder with images/ and masks/: content}, the masks in the order of the images, and what is said.
MASKS = {
    "plain": (["images/a.jpg", "images/b/c.png", "masks/a.png", "masks/b/c.png"], ["b/c.png", "a.png"], []),
    "capitals": (["images/a.JPG", "images/b.jpg", "masks/a.PNG", "masks/b.Png"], ["a.PNG", "b.Png"], []),
    "both": (["images/a.jpg", "masks/a.png", "masks/a.PNG"], ["a.png"], ["a.PNG is left out: a mask"]),
    "dots": (["images/a.1.jpg", "images/a.2.jpg", "masks/a.1.png", "masks/a.2.PNG"], ["a.1.png", "a.2.PNG"], []),
    "of_no_image": (["images/a.jpg", "masks/a.png", "masks/b.png", "masks/c.png"], ["a.png"], ["b.png and another one are left out: a mask that is named like no image"]),
    "hidden": (
        ["images/a.jpg", "images/.ipynb_checkpoints/a.jpg", "images/._a.jpg", "masks/a.png", "masks/.ipynb_checkpoints/a.png", "masks/._a.png", "masks/__MACOSX/a.png"],
        ["a.png"],
        ["._a.png and 2 others are left out: hidden"],
    ),
    "others": (["images/a.jpg", "masks/a.png", "masks/a.tif", "masks/notes.txt"], ["a.png"], ["a.tif is left out: not JPEG", "notes.txt is left out: not named"]),
    "another_format": (["images/a.jpg", "masks/a.bmp"], "images/a.jpg: no mask: there is no ", []),
    "hidden_mask": (["images/a.jpg", "masks/.a.png"], "images/a.jpg: no mask: there is no ", []),
    "missing": (["images/a.jpg", "images/b.jpg", "masks/a.PNG"], "images/b.jpg: no mask: there is no ", []),
}


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    top = tmp_path_factory.mktemp("masked")
    for case, (files, _, _) in MASKS.items():
        write_tree(top / case, dict.fromkeys(files, ""))
    requests = [{"kind": "masks", "images": str(top / case / "images"), "masks": str(top / case / "masks")} for case in MASKS]
    return top, dict(zip(MASKS, answers(requests, top), strict=True))


@pytest.mark.parametrize("case", MASKS)
def test_masks_of_images(masked, case):
    top, found = masked
    answer = found[case]
    _, expected, said = MASKS[case]
    if isinstance(expected, str):
        assert answer["status"] == DATA and expected in answer["error"], answer
        return
    assert answer["masks"] == [str(top / case / "masks" / name) for name in expected]
    assert len(answer["remarks"]) == len(said), answer
    assert all(any(part in line for line in answer["remarks"]) for part in said), answer


@pytest.fixture
def pets(tmp_path):
    """Returns a folder pets with 12 photographs of each of two classes, and 3 in .ipynb_checkpoints, and pets.tar."""
    random = np.random.default_rng(4)
    for name, count in (("cat", 12), ("dog", 12), (".ipynb_checkpoints", 3)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(count):
            photograph(random, name == "dog", 30).save(tmp_path / "pets" / name / f"{i}.jpg")
    with tarfile.open(tmp_path / "pets.tar", "w") as tar:
        tar.add(tmp_path / "pets", ".")
    return tmp_path


def test_commands_agree(pets):
    """Checks that `train` on a folder and on its archive, `new` and `prepare` leave out the same, and say so."""
    hidden = "left out: hidden (a name that begins with a dot, or a system's folder such as __MACOSX)"
    for data, first in (("pets", "pets/.ipynb_checkpoints is "), ("pets.tar", "pets.tar: .ipynb_checkpoints/0.jpg and 2 others are ")):
        run = train(write_images_config(pets, f'train: "{data}"', epochs=1), pets / f"run-{data}")
        assert run.status == DONE and first + hidden in run.err, run
        assert events(pets / f"run-{data}", "start")[0]["samples"] == 24
        new = Run(["new", data, "--output", f"{data}.pbtxt"], cwd=pets)
        assert new.status == DONE and "24 images of 2 classes" in new.out and first + hidden in new.out, new
    for command in (["images", "--size", 16], ["shards"]):
        run = Run(["prepare", *command, "pets", f"by-{command[0]}"], cwd=pets)
        assert run.status == DONE and "24 images" in run.out and f"pets/.ipynb_checkpoints is {hidden}" in run.err, run
    assert len([*(pets / "by-images").rglob("*.jpg")]) == 24 and not (pets / "by-images/.ipynb_checkpoints").exists()
    with tarfile.open(pets / "by-shards/shard-000000.tar") as tar:
        assert len(tar.getnames()) == 24 and not any(map(is_hidden, tar.getnames()))
    rows = predict(pets / "run-pets", pets / "pets")
    assert len(rows) == 24
