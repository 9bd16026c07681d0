"""Runs templates that come with a model: programs by strangers, in jinja2's sandbox with a budget of work.

jinja2's sandbox keeps a template from Python's internals and from changing its arguments. It does not bound work: ten
lines can double a string forty times. Here each iteration of a loop, and each value made or looked at, is charged to a
budget.

environment.py  the environment that compiles and runs a template
filters.py      the filters and tests that templates may use
budget.py       the budget, and the cost of a value
"""

__all__: list[str] = []
