"""Segue as a Python package: the program itself is `bin/segue`, and `__main__` starts it."""
