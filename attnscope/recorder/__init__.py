"""Seeing one run of a module: every tensor operation as the source called it, and the attention in it.

`record` runs a module under the mode of `mode`, which notes into a `recording`; `capture` finds attention
while the module runs; `preserve` leaves everything as it was.
"""
