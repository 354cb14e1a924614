"""Valid files made invalid, from a flipped bit to a header that lies: every one by a seed.

A mutation takes the valid bytes and a source of chance and gives other bytes; None stands for a
folder where the file should be.
"""

from collections.abc import Sequence

from hard.mutate_arrays import NPY, NPZ, image_size, npz_bomb, tensors_header
from hard.mutate_bytes import BYTES, Chance, Mutation
from hard.mutate_text import CSV, JSON, TOML, json_lines

#: How the bytes of a kind of file are changed: half as bytes, half as what they mean.
BY_KIND: dict[str, Sequence[Mutation]] = {
    "bytes": BYTES,
    "json": (*BYTES[:9], *BYTES, *JSON * 4),
    "jsonl": (*BYTES, json_lines, json_lines, json_lines) + (json_lines,) * 10,
    "toml": (*BYTES, *TOML * 4),
    "csv": (*BYTES, *CSV * 8),
    "npy": (*BYTES, *NPY * 4),
    "npz": (*BYTES, *NPZ * 3, npz_bomb),
    "tensors": (*BYTES, *(tensors_header,) * 10),
    "image": (*BYTES, *(image_size,) * 4),
}


def mutated(kind: str, content: bytes, chance: Chance) -> tuple[str, bytes | None]:
    """Give a mutation's name and what it makes of a file."""
    mutation = chance.choice(BY_KIND[kind])
    return mutation.__name__, mutation(content, chance)
