"""Measurements of outlast, as ratios to a raw limit taken in the same run.

`__main__.py` says which, `measures.py` how, `limits.py` beside what; `workflows.py` is the code
that is measured and `children.py` what runs in processes of its own. `table.py` is the output of
`make bench`, `plots.py` that of `make bench-plots`.
"""
