#!/usr/bin/env python3
"""What pre-training is worth: eight tasks learnt from an encoder pre-trained here and from random weights.

    python3 tests/bench/learning.py WORK [--only TASK ..] [--encoder DIR] [--summary mean]

In the folder WORK, step by step, each left out where its result is there already:
  1. text.txt, the unlabelled text of the tasks' training files and of other small sets; a tokenizer of 8,000 pieces from it and
     WikiText-2; a corpus of each.
  2. encoder/, xlnet-small pre-trained by two ranks: from left to right first, then in all orders and with BERT's next-sentence loss,
     so that the state of <cls> has learnt to gather and to compare. About 50 minutes.
  3. tasks/, each task learnt from the encoder and, alike, from random weights (--from-scratch), three seeds each, two runs at a
     time.
  4. table.md: means and 95 % intervals on dev, next to always giving the same answer. With --summary mean the answers are given from the mean
     of all states of a sequence instead of that of <cls>, and the results lie beside the others under names of their own.
The data are those of ../shared/data beside the repository.
"""

import argparse
import collections
import concurrent.futures
import gzip
import json
import pathlib
import random
import re
import statistics
import string
import subprocess
import sys

from alternate import ROOT, mpirun, segue_binary, skip

DATA = ROOT.parent / "shared/data"
GLUE = DATA / "glue"
WIKITEXT = DATA / "wikitext-2"
RECIPES = ROOT / "configs/recipes"
PIECES = 8000
SPECIAL = "<unk>,<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"
SEEDS = "1,2,3"
STUDENT = {3: 4.303}  # 97.5 % of its distribution for so many values
STEPS, PERMUTED_STEPS = 2400, 1600
LEFT_TO_RIGHT = ["objective.kind=lm", "model.attn_type=uni", "data.order=stream", "model.reuse_len=0", "pairs.num_predict=0",
                 "pairs.perm_size=0", "eval.steps=0"]


# ---- 1: text and corpora


def sentences(text):
    return re.split(r"(?<=[.!?]) +", text.replace("\n", " "))


def rows(path):
    with open(path, encoding="utf-8-sig") as lines:
        return [line.rstrip("\r\n").split("\t") for line in lines]


def documents():
    """Lists of sentences: what belongs together stands together, texts of a pair in both orders."""
    for text, *_ in rows(DATA / "agnews/dev.tsv"):
        yield sentences(text)
    for article in json.loads((DATA / "squad/train-v1.1.slice.json").read_text())["data"]:
        for paragraph in article["paragraphs"]:
            yield sentences(paragraph["context"]) + [q["question"] for q in paragraph["qas"]]
    for turns, questions, _ in json.loads((DATA / "dream/train.json").read_text()):
        yield turns + [q["question"] for q in questions]
    pairs = [(row[3], row[4]) for row in rows(GLUE / "MRPC/train.tsv")[1:]]
    pairs += [(row[1], row[2]) for row in rows(GLUE / "RTE/train.tsv")[1:]]
    pairs += [(row[7], row[8]) for row in rows(GLUE / "STS-B/train.tsv")[1:]]
    for first, second in pairs:
        yield [first, second]
        yield [second, first]
    with gzip.open(DATA / "multi30k/train.en.gz", "rt", encoding="utf-8") as lines:
        captions = list(lines)
    for part in ("image_coco", "test_emnlp"):
        captions += (DATA / f"textgan/{part}.txt").read_text(encoding="utf-8").splitlines()
    phrases = [row[0] for row in rows(GLUE / "SST-2/train.tsv")[1:] if len(row[0].split()) >= 8]
    for loose in (phrases, [row[3] for row in rows(GLUE / "CoLA/train.tsv")], captions):
        random.Random(1).shuffle(loose)
        yield from (loose[i:i + 12] for i in range(0, len(loose), 12))


def write_text(path):
    together = [[" ".join(line.split()) for line in document] for document in documents()]
    random.Random(2).shuffle(together)
    with open(path, "w", encoding="utf-8") as out:
        for document in together:
            lines = [line for line in document if line]
            if lines:
                out.write("\n".join(lines) + "\n\n")


def make_corpora(segue, work):
    text, tokenizer = work / "text.txt", work / "tokenizer"
    if not text.exists():
        write_text(text)
    if not tokenizer.exists():
        call([segue, "tokenizer", "train", "--kind", "bpe", "--vocab-size", str(PIECES), "--special", SPECIAL, "--input", text,
              WIKITEXT / "wiki.train.tokens", "--output", tokenizer])
    build = [segue, "data", "build", "--tokenizer", tokenizer]
    if not (work / "corpora/tasks").exists():
        call([*build, "--preset", "xlnet", "--train", text, "--output", work / "corpora/tasks"])
    if not (work / "corpora/wikitext").exists():
        call([*build, "--preset", "wikitext-xlnet", "--train", WIKITEXT / "wiki.train.tokens", "--valid",
              WIKITEXT / "wiki.valid.tokens", "--output", work / "corpora/wikitext"])


# ---- 2: the encoder


def pretrain(segue, work):
    """Two runs; each goes on where it was stopped, and does nothing where it is done.

    Words are predicted from left to right first, every one of them, as this leaves the loss of single words at once; a sixth of them
    in all orders only then, from the same weights: from random ones that takes 600 steps to learn anything from context.
    """
    corpus = work / "corpora/tasks"
    first, encoder = work / "left-to-right", work / "encoder"
    line = [*mpirun(2), segue, "pretrain", "--config", RECIPES / "xlnet-small.toml", f"model.vocab_size={PIECES}",
            "model.dropout=0", "model.dropatt=0", "eval.every=100000", "checkpoint.every=200"]
    call([*line, f"run.dir={first}", f"data.corpus={corpus}", f"data.valid={work / 'corpora/wikitext'}", *LEFT_TO_RIGHT,
          "optim.lr=1e-3", f"train.steps={STEPS * 3 // 2}", f"train.stop_at={STEPS}", "schedule.warmup=150"])
    call([*line, f"run.dir={encoder}", f"data.corpora={json.dumps([str(corpus)])}", f"train.init_from={first}",
          "objective.next_sentence=0.25", "optim.lr=4e-4", f"train.steps={PERMUTED_STEPS}", "schedule.warmup=60"])


# ---- 3: tasks

Task = collections.namedtuple("Task", "name shown data steps metric options same_answer")


def majority(labels):
    return collections.Counter(labels).most_common(1)[0][1] / len(labels)


def tasks(work):
    """What is learnt, how long, and what one answer to everything scores on dev."""
    def glue(part, column, header=True):
        return [row[column] for row in rows(GLUE / part / "dev.tsv")[header:]]

    positive = glue("MRPC", 0).count("1") / len(glue("MRPC", 0))
    data, news, dream, squad = glue_folder(work), news_folder(work), dream_folder(work), squad_folder(work)
    small = ["train.lanes=16", "train.micro_batch=16"]
    return [
        Task("sst2", "SST-2", data, 600, "accuracy", [], majority(glue("SST-2", 1))),
        Task("stsb", "STS-B", data, 540, "pearson", ["train.segment=96"], 0.0),
        Task("cola", "CoLA", data, 600, "matthews", ["train.segment=64", "optim.lr=2e-4"], 0.0),
        Task("agnews", "AG News", news, 220, "accuracy", ["train.segment=96"], majority([r[-1] for r in rows(news / "dev.tsv")])),
        Task("mrpc", "MRPC", data, 60, "f1", [], 2 * positive / (positive + 1)),
        Task("rte", "RTE", data, 234, "accuracy", [], majority(glue("RTE", 3))),
        Task("squad1", "SQuAD 1.1", squad, 200, "f1", [*small, "train.segment=192"], same_span(squad / "dev-v1.1.json")),
        Task("dream", "DREAM", dream, 80, "accuracy", small, majority(dream_answers(dream / "dev.json"))),
    ]


def folder(work, name):
    path = work / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def link(path, target):
    if not path.exists():
        path.symlink_to(target)


def glue_folder(work):
    """Without test files: nothing is to be answered that nobody can score."""
    for part in ("SST-2", "STS-B", "CoLA", "MRPC", "RTE"):
        for name in ("train.tsv", "dev.tsv"):
            link(folder(work, f"glue/{part}") / name, GLUE / part / name)
    return work / "data/glue"


def news_folder(work):
    """AG News' dev file to learn from, as its training file is not here, and 2,000 rows of its test file as dev."""
    path = folder(work, "agnews")
    link(path / "train.tsv", DATA / "agnews/dev.tsv")
    with open(DATA / "agnews/test.tsv", encoding="utf-8") as lines:
        (path / "dev.tsv").write_text("".join(list(lines)[:2000]), encoding="utf-8")
    return path


def dream_folder(work):
    path = folder(work, "dream")
    link(path / "train.json", DATA / "dream/train.json")
    (path / "dev.json").write_text(json.dumps(json.loads((DATA / "dream/dev.json").read_text())[:400]))
    return path


def dream_answers(path):
    return [q["choice"].index(q["answer"]) for _, questions, _ in json.loads(path.read_text()) for q in questions]


def squad_folder(work):
    """The slice of the training file that is here, and four articles of dev."""
    path = folder(work, "squad")
    link(path / "train-v1.1.json", DATA / "squad/train-v1.1.slice.json")
    dev = json.loads((DATA / "squad/dev-v1.1.json").read_text())
    (path / "dev-v1.1.json").write_text(json.dumps({**dev, "data": dev["data"][1:5]}))
    return path


def same_span(path):
    """F1 of answering every question with the first words of its paragraph, as many of them as serve best."""
    questions = [(paragraph["context"].split(), [a["text"] for a in q["answers"]])
                 for article in json.loads(path.read_text())["data"] for paragraph in article["paragraphs"]
                 for q in paragraph["qas"]]

    def words(text):
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return collections.Counter(w for w in kept.split() if w not in ("a", "an", "the"))

    def f1(answer, golds):
        best = 0.0
        for gold in golds:
            common = (answer & gold).total()
            best = max(best, 2 * common / max(answer.total() + gold.total(), 1))
        return best

    golds = [[words(text) for text in texts] for _, texts in questions]
    return max(sum(f1(words(" ".join(context[:n])), gold) for (context, _), gold in zip(questions, golds)) / len(golds)
               for n in (1, 2, 3, 5, 8, 12, 20, 40)) * 100


def command(segue, work, task, scratch, summary):
    run = work / "tasks" / f"{task.name}-{'random' if scratch else 'encoder'}{suffix(summary)}"
    return run, [segue, "finetune", "--json", "--task", task.name, "--model", work / "encoder", "--data", task.data, "--config",
                 RECIPES / "finetune-small.toml", "--seeds", SEEDS, *(["--from-scratch"] if scratch else []), f"run.dir={run}",
                 f"task.summary={summary}", "task.epochs=0", f"train.steps={task.steps}", "optim.lr=4e-4", *task.options]


def suffix(summary):
    return "" if summary == "last" else f"-{summary}"


def learn(segue, work, task, scratch, summary):
    run, line = command(segue, work, task, scratch, summary)
    result = run.with_suffix(".json")
    if not result.exists():
        run.parent.mkdir(exist_ok=True)
        with open(run.with_suffix(".log"), "w") as log:
            found = subprocess.run(list(map(str, line)), stdout=subprocess.PIPE, stderr=log, text=True)
        if found.returncode != 0:
            sys.exit(f"{' '.join(map(str, line))}\nexit code {found.returncode}; see {run.with_suffix('.log')}")
        result.write_text(found.stdout.splitlines()[-1] + "\n")
    metrics = json.loads(result.read_text())["metrics"]
    found = next(m for m in metrics if (m["split"], m["metric"]) == ("dev", task.metric))
    print(f"{task.shown} from {'random weights' if scratch else 'the encoder'}: {task.metric} {found['values']}", flush=True)
    return found


# ---- 4: the table


def interval(values):
    """Mean and half-width of its 95 % interval, Student's."""
    return statistics.mean(values), STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5


def table(results):
    """Differences are by seed: the two runs of a seed see the same examples in the same order."""
    lines = ["| task | steps | metric | pre-trained | random weights | difference | same answer |", "|---|---|---|---|---|---|---|"]
    for task, (ours, random_weights) in results:
        found, chance = ours["values"], random_weights["values"]
        shown = ["{:.4g} ± {:.2g}".format(*interval(values)) for values in (found, chance)]
        shown.append("{:+.3g} ± {:.2g}".format(*interval([a - b for a, b in zip(found, chance)])))
        lines.append(f"| {task.shown} | {task.steps} | {task.metric} | {' | '.join(shown)} | {task.same_answer:.4g} |")
    return "\n".join(lines) + "\n"


def call(line):
    line = list(map(str, line))
    print(" ".join(line), flush=True)
    if subprocess.run(line).returncode != 0:
        sys.exit(f"failed: {' '.join(line)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="names of tasks, as segue finetune has them")
    parser.add_argument("--encoder", type=pathlib.Path, help="a model folder or run folder to learn from, instead of steps 1 and 2")
    parser.add_argument("--summary", choices=("last", "mean"), default="last", help="task.summary of all runs")
    args = parser.parse_args()
    if not DATA.is_dir():
        skip(f"{DATA} is not there")
    work, segue = args.work.resolve(), segue_binary()
    work.mkdir(parents=True, exist_ok=True)
    if args.encoder:
        link(work / "encoder", args.encoder.resolve())
    else:
        make_corpora(segue, work)
        pretrain(segue, work)
    wanted = [task for task in tasks(work) if not args.only or task.name in args.only]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [[pool.submit(learn, segue, work, task, scratch, args.summary) for scratch in (False, True)] for task in wanted]
        results = [(task, [future.result() for future in futures]) for task, futures in zip(wanted, waiting)]
    (work / f"table{suffix(args.summary)}.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
