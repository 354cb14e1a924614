"""Image models of Hugging Face transformers as networks: ``…adapters.transformers:vision``.

The library fetches weights and keeps them, not polarbear.
"""

from typing import Any, Literal, get_args

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.base.missing import needing

with needing("Hugging Face transformers", "transformers"):
    import transformers
    from torch import Tensor, nn

Pool = Literal["first", "mean", "pooler"]
_BICUBIC = 3  # Pillow's number, as processors write it


class Vision(nn.Module):
    """An image model whose output is one feature vector: (n, 3, side, side) → (n, out_features)."""

    def __init__(self, model: nn.Module, pool: Pool, images: dict[str, Any]) -> None:
        """Take a model, how its tokens become one, and what its processor says of images."""
        super().__init__()
        self.model, self.pool = model, pool
        config: Any = model.config
        self.out_features = int(getattr(config, "hidden_size", 0) or config.hidden_sizes[-1])
        self.pretrained_cfg = _wanted(config, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the first token, the mean of all tokens, or what the model's own pooler gives."""
        found = self.model(pixel_values=images)
        if self.pool == "pooler":
            pooled: Tensor = found.pooler_output
            return pooled.flatten(1)
        tokens: Tensor = found.last_hidden_state
        if tokens.ndim != 3:
            raise PolarbearError(
                f"{type(self.model).__name__} has maps {tuple(tokens.shape)} and no tokens: give "
                "network_options pool=pooler"
            )
        return tokens[:, 0] if self.pool == "first" else tokens.mean(dim=1)


def vision(
    name: str, pool: Pool = "first", frozen: bool = True, side: int | None = None
) -> nn.Module:
    """Return an image model by its name or folder, as its authors trained it.

    ``pool`` says which features: of the first token, the mean of all, or the model's own pooler
    (for convolutional ones, and where the authors trained one: not for ViTs of 21,000 classes). It
    is ``frozen`` unless told otherwise. Images are brought to the size of its processor, or to
    ``side``, where the model takes it.
    """
    if pool not in get_args(Pool):  # any other would be taken for mean
        raise unknown_name("pool", pool, get_args(Pool))
    model = transformers.AutoModel.from_pretrained(name)
    images, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    images = images if side is None else {**images, "crop_size": side, "do_center_crop": True}
    network = Vision(getattr(model, "vision_model", model), pool, images)
    network.frozen = frozen  # type: ignore[assignment]
    return network


def _wanted(config: Any, images: dict[str, Any]) -> dict[str, Any]:
    """Return size and colours as timm's networks tell them.

    The size is the processor's: a model's own may be another, as DINOv2's 518 is, not 224.
    """
    cut = images.get("do_center_crop") and images.get("crop_size")
    size: Any = cut or images.get("size") or getattr(config, "image_size", None)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    side = size[0] if isinstance(size, (list, tuple)) else size
    return {
        "input_size": (3, side, side) if side else None,
        "mean": images.get("image_mean"),
        "std": images.get("image_std"),
        "interpolation": "bicubic" if images.get("resample") == _BICUBIC else "bilinear",
    }
