#!/usr/bin/env bash
# Guess: JSON has types, unlike CSV, so pandas.read_json gives a string back as a string and a number as a number.
# Fact: if all strings of a column look like numbers, read_json converts them to numbers. So ids such as "007" lose
# their leading zeros, and a hash such as "12e3" becomes 12000. In a column whose name ends in _time or _at, such as a
# log's step_time in ns, numbers above 31,536,000 (the seconds of a year) become dates. dtype=False turns both
# conversions off.
# Seen with pandas 3.1.1:
#   as found: id "007" is 7, hash "12e3" is 12000.0, step_time 960000000 is 2000-06-03 02:40:00, 960000 is 960000
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps pandas==3.1.1 numpy==2.4.6 python-dateutil==4.0.0 tzdata==2026.6
venv/bin/python - <<'EOF'
import io
import sys
import pandas

row = pandas.read_json(io.StringIO('{"id": "007", "hash": "12e3", "step_time": 960000000}\n'), lines=True).iloc[0]
short = pandas.read_json(io.StringIO('{"step_time": 960000}\n'), lines=True)["step_time"][0]
seen = (
    f'id "007" is {row["id"]}, hash "12e3" is {row["hash"]}, '
    f'step_time 960000000 is {row["step_time"]}, 960000 is {short}'
)
found = seen == 'id "007" is 7, hash "12e3" is 12000.0, step_time 960000000 is 2000-06-03 02:40:00, 960000 is 960000'
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
