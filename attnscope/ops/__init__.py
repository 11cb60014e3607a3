"""What the operations of PyTorch are: their names and kinds, what they do to memory, einsum's equations."""
