#!/usr/bin/env python3
"""Random cases of every measure with the values that public programs give them.

  make_metric_cases.py SQUAD_V1.py SQUAD_V2.py OUT.json.zst

SQUAD_V1.py and SQUAD_V2.py are the official scorers of SQuAD 1.1 and 2.0, for example
metrics/squad/compute_score.py of github.com/huggingface/evaluate and squad_utils.py of github.com/zihangdai/xlnet. The
rest comes from scikit-learn, SciPy and seqeval; expected reciprocal rank, which none of them has, from a sum over the
ways to read a list, in exact fractions. Exits with 2 where the packages are not installed.
"""
import contextlib
import importlib.util
import io
import json
import math
import random
import sys
import warnings
from fractions import Fraction

try:
    import zstandard
    from scipy.stats import ConstantInputWarning, pearsonr, spearmanr
    from seqeval.metrics import f1_score as entity_f1
    from seqeval.metrics import precision_score, recall_score
    from sklearn.metrics import (accuracy_score, f1_score, matthews_corrcoef, ndcg_score,
                                 precision_recall_fscore_support)
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

CASES = 1000
WORDS = ("a an the The A. the-end cat's 12,5 $20 Zürich naïve ΟΔΟΣ İzmir — … «x» a_b re-act x\u00a0y \u0301 a\u0301 "
         "an'an 10th 1066 Łódź 東京 Ⓐa O'Neil (the) \"an\" Denver Broncos Normans France of and").split(" ")


def script(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def number(value):
    """JSON has no NaN."""
    return None if math.isnan(value) else float(value)


def classes(draw):
    kinds, length = draw.randint(2, 5), draw.randint(1, 24)
    gold = [draw.randrange(kinds) for _ in range(length)]
    predicted = [label if draw.random() < 0.5 else draw.randrange(kinds) for label in gold]
    if draw.random() < 0.05:
        predicted = [1] * length
    precision, recall, f1, _ = precision_recall_fscore_support(
        [label == 1 for label in gold], [label == 1 for label in predicted], average="binary", zero_division=0)
    return dict(gold=gold, predicted=predicted, accuracy=accuracy_score(gold, predicted), precision=precision,
                recall=recall, f1=f1, macro_f1=f1_score(gold, predicted, average="macro", zero_division=0),
                matthews=matthews_corrcoef(gold, predicted))


def correlation(draw):
    length, digits = draw.randint(2, 16), draw.choice([0, 0, 1, 3])
    gold = [round(draw.uniform(0, 5), digits) for _ in range(length)]
    predicted = [round(value * draw.choice([-1, 1]) + draw.gauss(0, 2), digits) for value in gold]
    if draw.random() < 0.05:
        predicted = [predicted[0]] * length
    return dict(gold=gold, predicted=predicted, pearson=number(pearsonr(gold, predicted).statistic),
                spearman=number(spearmanr(gold, predicted).statistic))


def ranking(draw):
    length, highest, k = draw.randint(2, 25), draw.randint(1, 4), draw.choice([1, 5, 10, 20])
    grades = [draw.choice([0, 0, draw.randint(0, highest)]) for _ in range(length)]
    gains, scores = [[2 ** grade - 1 for grade in grades]], [[-place for place in range(length)]]
    content = [Fraction(2 ** grade - 1, 2 ** highest) for grade in grades[:k]]
    stops = (Fraction(1, place + 1) * here * math.prod(1 - before for before in content[:place])
             for place, here in enumerate(content))
    return dict(ranked=grades, highest=highest, k=k, ndcg=ndcg_score(gains, scores, k=k), err=float(sum(stops)))


def tagging(draw):
    scheme = draw.choice(["IO", "IBO", "IBO", "IBOES"])
    tag = lambda: "O" if (prefix := draw.choice(scheme)) == "O" else f"{prefix}-{draw.choice(['PER', 'LOC'])}"
    gold = [[tag() for _ in range(draw.randint(1, 9))] for _ in range(draw.randint(1, 3))]
    predicted = [[old if draw.random() < 0.7 else tag() for old in sentence] for sentence in gold]
    return dict(gold=[" ".join(tags) for tags in gold], predicted=[" ".join(tags) for tags in predicted],
                precision=precision_score(gold, predicted, zero_division=0),
                recall=recall_score(gold, predicted, zero_division=0),
                f1=entity_f1(gold, predicted, zero_division=0))


def squad(draw, v1, v2):
    text = lambda: draw.choice(["", " ", "  "]).join(draw.choices(WORDS, k=draw.randint(1, 4)))
    questions, predictions, odds = [], {}, {}
    for place in range(draw.randint(1, 7)):
        name = f"q{place}"
        answers = [text() for _ in range(draw.choice([0, 1, 1, 3]))]
        questions.append(dict(id=name, answers=[dict(text=answer) for answer in answers]))
        predictions[name] = draw.choice([text(), text(), "", *answers, *(f"{a} {text()}" for a in answers)])
        # The scorer of 2.0 takes an answer for one that says something although it has articles alone.
        if not v2.normalize_answer(predictions[name]):
            predictions[name] = ""
        odds[name] = round(draw.random(), 6)
    if len(set(odds.values())) < len(odds):
        return squad(draw, v1, v2)
    threshold = round(draw.random(), 3)
    dataset = [dict(paragraphs=[dict(qas=questions)])]
    answerable = v2.make_qid_to_has_ans(dataset)
    exact, f1 = v2.get_raw_scores(dataset, predictions)
    cut = [v2.apply_no_ans_threshold(scores, odds, answerable, threshold) for scores in (exact, f1)]
    report = v2.make_eval_dict(*cut)
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        if of_kind := [question for question, has in answerable.items() if has == wanted]:
            v2.merge_eval(report, v2.make_eval_dict(*cut, qid_list=of_kind), name)
    v2.find_all_best_thresh(report, predictions, exact, f1, odds, answerable)
    with_answers = [question for question in questions if question["answers"]]
    first = v1.compute_score([dict(paragraphs=[dict(qas=with_answers)])], predictions) if with_answers else None
    return dict(answers=[[answer["text"] for answer in question["answers"]] for question in questions],
                predictions=list(predictions.values()), odds=list(odds.values()), threshold=threshold, v1=first,
                v2=report)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    v1, v2 = script("squad_v1", sys.argv[1]), script("squad_v2", sys.argv[2])
    warnings.simplefilter("ignore", ConstantInputWarning)
    warnings.simplefilter("ignore", UserWarning)
    kinds = dict(classes=classes, correlation=correlation, ranking=ranking, tagging=tagging,
                 squad=lambda draw: squad(draw, v1, v2))
    cases = {}
    for seed, (name, make) in enumerate(kinds.items()):
        draw = random.Random(seed)
        with contextlib.redirect_stdout(io.StringIO()):
            cases[name] = [make(draw) for _ in range(CASES)]
    packed = json.dumps(cases, ensure_ascii=False, separators=(",", ":")).encode()
    with open(sys.argv[3], "wb") as out:
        out.write(zstandard.ZstdCompressor(level=19).compress(packed))


main()
