"""Segue from Python: calls of its commands, the numbers of its runs, and tables of runs side by side.

    import segue

    segue.run("pretrain", config="demo", ranks=2, overrides={"run.dir": "runs/demo", "data.corpus": "corpora/mine"})
    run = segue.Run("runs/demo")
    print(run.train["step"], run.train["loss"])

What is computed is computed by the program: `bin/segue` of the wheel, which `__main__` starts, else the one that the variable
`SEGUE_BIN` names, else `segue` on PATH.
"""

from .program import SegueError, run
from .runs import Checkpoint, Columns, Comparison, Run, RunError, compare

__all__ = ["Checkpoint", "Columns", "Comparison", "Run", "RunError", "SegueError", "compare", "run"]
