#!/usr/bin/env python3
"""Scores corpora with sacrebleu, and tokenises lines with its tokenisers.

    $(scripts/peers.sh python base) tests/peers/sacrebleu_scores.py CASES.json

CASES holds `corpora`, each with `hypotheses` and, for each of them, a list of `references`; `evaluations`, each with the index
of its `corpus`, `metric` (BLEU, CHRF or TER) and `settings`, the arguments of the metric; `lines`, texts to tokenise; and
`tokenizers`, each with `metric` and `settings`. Prints one JSON object: the `version`; under `outcomes`, for each evaluation,
the score of the corpus, sacrebleu's line with the signature, the short signature and the scores of the first sentences;
under `tokenizers`, for each of them, the tokenised lines. Exits 2 where sacrebleu is not installed.
"""

import itertools
import json
import logging
import pathlib
import sys

try:
    import sacrebleu
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

# It would advise effective order for each sentence.
logging.getLogger("sacrebleu").setLevel(logging.ERROR)

SENTENCES = 200


def metric_of(case):
    return getattr(sacrebleu.metrics, case["metric"])(**case["settings"])


def scores(evaluation, corpus):
    metric = metric_of(evaluation)
    hypotheses, references = corpus["hypotheses"], corpus["references"]
    # A stream for each reference; None where a sentence has fewer.
    streams = list(itertools.zip_longest(*references))
    total = metric.corpus_score(hypotheses, streams)
    signature = metric.get_signature()
    line = total.format(signature=str(signature))
    short = signature.format(short=True)
    pairs = list(zip(hypotheses, references))[:SENTENCES]
    sentences = [metric.sentence_score(hypothesis, lines).score for hypothesis, lines in pairs]
    return {"score": total.score, "line": line, "short": short, "sentences": sentences}


def tokenized(tokenizer, lines):
    metric = metric_of(tokenizer)
    # As the metrics do, which count what `split` leaves of this.
    return [" ".join(metric._preprocess_segment(line).split()) for line in lines]


def main(path):
    cases = json.loads(pathlib.Path(path).read_text())
    print(json.dumps({
        "version": sacrebleu.__version__,
        "outcomes": [scores(each, cases["corpora"][each["corpus"]]) for each in cases["evaluations"]],
        "tokenizers": [tokenized(each, cases["lines"]) for each in cases["tokenizers"]],
    }))


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
