#!/usr/bin/env bash
# Guess: Hugging Face's tokenizers raise an error, or return an unknown token, for a letter for which the vocabulary has
# no token.
# Fact: BPE() has no unk_token by default. Without an unk_token it leaves out, without a warning, each letter for which
# it has no token, so 5+7=12 becomes 12. WordLevel and WordPiece, with their defaults and trained on the same text,
# raise an exception.
# Seen with tokenizers 0.23.3:
#   as found: 5+7=12 is ['12'] for BPE, an exception for WordLevel, an exception for WordPiece
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps tokenizers==0.23.3
venv/bin/python - <<'EOF'
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def tokens_of(text, model, trainer):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(["12 months", "12 days"], trainer)
    try:
        return tokenizer.encode(text).tokens
    except Exception:  # the library raises no narrower one
        return "an exception"


bpe = tokens_of("5+7=12", models.BPE(), trainers.BpeTrainer(show_progress=False))
level = tokens_of("5+7=12", models.WordLevel(), trainers.WordLevelTrainer(show_progress=False))
piece = tokens_of("5+7=12", models.WordPiece(), trainers.WordPieceTrainer(show_progress=False))
seen = f"5+7=12 is {bpe} for BPE, {level} for WordLevel, {piece} for WordPiece"
found = seen == "5+7=12 is ['12'] for BPE, an exception for WordLevel, an exception for WordPiece"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
