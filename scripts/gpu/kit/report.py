"""Files with the results, complete after every one of them, and the lines on the terminal."""

import json
import math
import os
import pathlib
import platform

# The first line of the JSON, for whoever reads several generations of them.
SCHEMA = 1


def write_whole(path, text):
    """Puts a file in its place only when it is written to its end."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text)
    os.replace(beside, path)


def gib(size):
    return f"{size / (1 << 30):.1f} GiB"


def host_facts(torch, card):
    """What every result was measured on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"gpu": card.get("gpu"), "cc": card.get("cc"), "driver": card.get("driver"), "gpu_memory": card.get("gpu_memory"),
            "torch": torch.version, "torch_commit": torch.commit, "python": platform.python_version(),
            "cores": len(os.sched_getaffinity(0)), "memory": gib(memory)}


def finite(value):
    """The same without numbers that JSON has no words for: they become null."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cell(value):
    """A value in a table of Markdown."""
    if value is None:
        return "–"
    text = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}" \
        if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def table(titles, rows):
    """Lines of a table."""
    lines = [titles, ["---"] * len(titles), *([cell(value) for value in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


class Report:
    """`NAME.json` and `NAME.md` in a folder."""

    def __init__(self, folder, name, head, columns, key):
        """`head` is what is true of all results; `columns` are those of the table, by their keys; `key` names the list."""
        self.folder, self.name, self.head, self.columns, self.key = pathlib.Path(folder), name, head, columns, key
        self.results, self.notes = [], []
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, result, seconds):
        self.results.append(result)
        self.write(seconds)

    def note(self, text, seconds):
        self.notes.append(text)
        print(f"        {text}", flush=True)
        self.write(seconds)

    def write(self, seconds):
        content = {"schema": SCHEMA, **self.head, self.key: self.results, "notes": self.notes, "seconds": round(seconds, 1)}
        write_whole(self.folder / f"{self.name}.json", json.dumps(finite(content), indent=1, allow_nan=False) + "\n")
        write_whole(self.folder / f"{self.name}.md", "\n".join(self.page(seconds)) + "\n")

    def page(self, seconds):
        host, kit = self.head["host"], self.head["kit"]
        yield f"# {self.name}"
        yield ""
        yield f"Segue {kit['version']}, torch {host['torch']}, {host['gpu'] or 'no GPU'}" + (
            f" (compute capability {host['cc']}, driver {host['driver']}, {host['gpu_memory']})" if host["gpu"] else "") + (
            f", {host['cores']} cores, {host['memory']}, Python {host['python']}; {seconds:.0f} s in all.")
        yield ""
        yield from table(list(self.columns.values()), [[result.get(key) for key in self.columns] for result in self.results])
        if self.notes:
            yield ""
            yield from (f"- {note}" for note in self.notes)
