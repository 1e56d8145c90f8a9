"""Handles of one's own for `worldline lab kill`: a reduction of the state, and a predictor of it."""

import torch


def every_other_row(state):
    """A handle: state -> state, dicts of tensors by path. Every other row of each cache stands for the one after it."""
    made = {}
    for path, tensor in state.items():
        if tensor.is_floating_point() and tensor.dim() >= 3:
            odd = tensor[:, 1::2]
            odd.copy_(tensor[:, ::2][:, : odd.shape[1]])
        made[path] = tensor
    return made


def rolled_by_half(before):
    """A predictor: the state a block before -> a guess at this one. A window of two blocks has moved down by one."""
    guess = {}
    for path, tensor in before.items():
        guess[path] = torch.roll(tensor, -(tensor.shape[1] // 2), 1) if tensor.dim() >= 3 else tensor
    return guess
