"""Where every element of a tensor goes, worked out on sizes and strides alone, without torch.

`strided.py` is a tensor of element numbers, `moves.py` what each method of a chain does to it, `chain.py`
reads a chain, `patterns.py` those of einops, `cures.py` says what would work where a step cannot be done.
"""
