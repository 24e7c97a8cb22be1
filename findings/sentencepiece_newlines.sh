#!/usr/bin/env bash
# Guess: sentencepiece promises lossless tokenization in its README, so decode(encode(text)) equals the text.
# Fact: the tokenization is lossless only for the normalised text. By default, normalisation turns each run of spaces
# and newlines into one space, so code loses its lines and its indentation, and a text loses its paragraphs.
# Seen with sentencepiece 0.2.3:
#   as found: 'def f(x):\n    return x\n' becomes 'def f(x): return x'
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q sentencepiece==0.2.3
venv/bin/python - <<'EOF'
import io
import sys
import sentencepiece

lines = ["def f(x):", "    return x", "    y = x", "    return y + 1"] * 20
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines),
    model_writer=model,
    model_type="bpe",
    vocab_size=30,
    hard_vocab_limit=False,
    minloglevel=2,
)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
text = "def f(x):\n    return x\n"
seen = f"{text!r} becomes {processor.decode(processor.encode(text))!r}"
found = seen == r"'def f(x):\n    return x\n' becomes 'def f(x): return x'"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
