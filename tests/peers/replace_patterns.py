"""Reads `[patterns, texts]` and writes, for each pattern, the texts with `|` for what it matches."""

import json
import sys

from tokenizers import Regex
from tokenizers.normalizers import Replace

patterns, texts = json.load(sys.stdin)
steps = [Replace(Regex(pattern), "|") for pattern in patterns]
json.dump([[step.normalize_str(text) for text in texts] for step in steps], sys.stdout)
