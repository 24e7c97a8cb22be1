"""Writes a wheel of the files in FOLDER to standard output.

    python3 -c SCRIPT FOLDER NAME VERSION TAG TORCH COMMAND

SCRIPT is the text of this file. NAME and VERSION are the name and the version of the Python distribution. TAG is the
wheel's tag, for example py3-none-manylinux_2_34_x86_64. TORCH names the series of torch for which the wheel has a
program, such as 2.11,2.15. COMMAND is the name of the command that starts the program. The same files make a wheel with the same bytes.
"""

import base64
import hashlib
import os
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Trains PyTorch-style models on every GPU of a machine, from one text file or from Python
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.10
Requires-Dist: torch{torch}
"""

WHEEL = """Wheel-Version: 1.0
Generator: lockstep ({version})
Root-Is-Purelib: false
Tag: {tag}
"""

ENTRY_POINTS = """[console_scripts]
{command} = lockstep.program:main
"""


def main(folder, name, version, tag, torch, command):
    facts = {"name": name, "version": version, "tag": tag, "command": command}
    series = sorted(torch.split(","), key=lambda name: [int(number) for number in name.split(".")])
    # With several series the wheel also goes beside a torch between them, for which it has no program: the start script
    # names the nearest one. pip would otherwise replace the user's torch.
    facts["torch"] = f"=={series[0]}.*" if len(series) == 1 else f">={series[0]},<={series[-1]}.9999"
    info = f"{name}-{version}.dist-info/"
    files = {}  # maps a path in the wheel to the file's content and mode
    for path, _, names in os.walk(folder):
        for file_name in names:
            full = os.path.join(path, file_name)
            with open(full, "rb") as file:
                files[os.path.relpath(full, folder)] = file.read(), os.stat(full).st_mode & 0o777 | 0o644
    for file_name, text in (("METADATA", METADATA), ("WHEEL", WHEEL), ("entry_points.txt", ENTRY_POINTS)):
        files[info + file_name] = text.format(**facts).encode(), 0o644
    record = ""
    for path in sorted(files):
        content, _ = files[path]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[info + "RECORD"] = f"{record}{info}RECORD,,\n".encode(), 0o644
    # The wheel format recommends that the files of .dist-info come last.
    with zipfile.ZipFile(sys.stdout.buffer, "w") as archive:
        for path in sorted(files, key=lambda path: (path.startswith(info), path)):
            content, mode = files[path]
            entry = zipfile.ZipInfo(path)  # dated 1980-01-01, the default, so that the same files make the same bytes
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 6)


main(*sys.argv[1:])
