#!/usr/bin/env bash
# Guess: TensorBoard's page shows only a sample of the values of a long curve, but TensorBoard's EventAccumulator, with
# which scripts read runs, keeps all values.
# Fact: EventAccumulator keeps only 10,000 values of a scalar: the last one, and others that are drawn at random over
# the run. Nothing tells the script that there were more values. Sums, smoothed curves and the best step are then
# computed from a part of the values. With size_guidance={"scalars": 0}, EventAccumulator keeps all values.
# Seen with tensorboard 2.21.0:
#   as found: of 20000 values 10000 are read, the last one among them; with size_guidance 20000
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps tensorboard==2.21.0 absl-py==2.5.1 grpcio==1.85.3 markdown==3.11.3 markupsafe==3.0.4 \
  numpy==2.4.6 packaging==26.4 pillow==13.0.0 protobuf==7.36.2 typing-extensions==4.16.0 werkzeug==3.1.9
venv/bin/python - <<'EOF'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("run")
for step in range(20000):
    writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=step)])))
writer.close()


def steps_read(**options):
    return [event.step for event in EventAccumulator("run", **options).Reload().Scalars("loss")]


steps = steps_read()
last = "the last one among them" if steps[-1] == 19999 else "without the last one"
every = len(steps_read(size_guidance={"scalars": 0}))
seen = f"of 20000 values {len(steps)} are read, {last}; with size_guidance {every}"
found = seen == "of 20000 values 10000 are read, the last one among them; with size_guidance 20000"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
