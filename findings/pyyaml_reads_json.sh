#!/usr/bin/env bash
# Guess: JSON is a subset of YAML, so PyYAML reads everything that json.dumps writes.
# Fact: PyYAML reads numbers by YAML 1.1, in which a number with an exponent needs a decimal point before the exponent,
# and the exponent needs a sign. json.dumps writes 0.0001 as it is, but 0.00001 as 1e-05, which PyYAML reads as a
# string. So a config with learning rate 0.0001 works, but with 0.00001 the learning rate is a string.
# Seen with PyYAML 6.0.4:
#   as found: {"a": 0.0001, "b": 1e-05, "c": 1.5e-05} is read as {'a': 0.0001, 'b': '1e-05', 'c': 1.5e-05}
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q pyyaml==6.0.4
venv/bin/python - <<'EOF'
import json
import sys
import yaml

text = json.dumps({"a": 1e-4, "b": 1e-5, "c": 1.5e-5})
seen = f"{text} is read as {yaml.safe_load(text)}"
found = seen == """{"a": 0.0001, "b": 1e-05, "c": 1.5e-05} is read as {'a': 0.0001, 'b': '1e-05', 'c': 1.5e-05}"""
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
