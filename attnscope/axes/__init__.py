"""Names for axes: `naming` walks a recording by the `rules` of each operation, `details` words them.

`dims` are what axes are, apart from their sizes; `scope` and `vocabulary` say what the source calls them.
"""
