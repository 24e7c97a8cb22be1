#!/usr/bin/env bash
# Guess: truncation=True is an argument of one call, so the files that save_pretrained writes do not depend on earlier
# calls.
# Fact: the call sets the truncation and the padding of the underlying `tokenizers` object, and save_pretrained writes
# these settings to tokenizer.json. transformers itself sets truncation and padding in each call. But a program that
# reads the file with the package `tokenizers` (a server, a data loader) cuts all texts to the max_length of the last
# call before the file was written.
# Seen with transformers 5.24.0 and tokenizers 0.23.3:
#   as found: of 6 words tokenizers reads 6, and 2 of a file saved after max_length=2; transformers reads 6
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q transformers==5.24.0 tokenizers==0.23.3
export TRANSFORMERS_VERBOSITY=error
venv/bin/python - <<'EOF'
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

text = "a b c d e f"
words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator([text], trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
tokenizer.save_pretrained("before")
tokenizer(text, truncation=True, max_length=2)
tokenizer.save_pretrained("after")
before, after = (
    len(Tokenizer.from_file(f"{folder}/tokenizer.json").encode(text).ids) for folder in ("before", "after")
)
own = len(PreTrainedTokenizerFast.from_pretrained("after")(text)["input_ids"])
seen = f"of 6 words tokenizers reads {before}, and {after} of a file saved after max_length=2; transformers reads {own}"
found = seen == "of 6 words tokenizers reads 6, and 2 of a file saved after max_length=2; transformers reads 6"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
