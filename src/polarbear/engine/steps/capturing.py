"""What the process and PyTorch need around a capture: waits, and random numbers."""

import pickle
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def waiting_is_an_error(device: torch.device) -> Iterator[None]:
    """Let a step that waits for the device fail here: a failed capture may spoil later ones."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # It does not see every wait; a capture fails by those that it misses.
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def free_random_numbers(device: torch.device) -> None:
    """Let eager steps draw again: PyTorch's generator may still wait for a failed capture."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            ours = torch.cuda.default_generators[torch.cuda.current_device()]
        state = ours.get_state()
        ours.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        ours.set_state(state)


def random_states(device: torch.device) -> list[bytes]:
    """Give the states of all generators that a step might draw from."""
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    # Numbers from elsewhere are no method's to draw, but would be drawn once for all steps.
    elsewhere = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    return [*(state.numpy().tobytes() for state in states), pickle.dumps(elsewhere)]
