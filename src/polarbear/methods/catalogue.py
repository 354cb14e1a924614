"""What is known of the methods without PyTorch and without importing one: for lists and reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from polarbear.base.errors import unknown_name
from polarbear.base.names import readable

ENTRY_POINTS = "polarbear.methods"


@dataclass(frozen=True)
class Listed:
    """Where a method is (``package.module:Class``), and what its class says of itself.

    ``title`` is the name people know it by. A ``bound`` sees complete labels or keeps every image;
    the paper sets such methods apart, too. ``options`` are its usual ones.
    """

    path: str
    title: str
    summary: str
    bound: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


METHODS: Mapping[str, Listed] = MappingProxyType(
    {
        "finetune": Listed(
            "polarbear.methods.finetune:Finetune",
            "finetune",
            "trains on each task as it comes; the lower bound",
        ),
        "er": Listed("polarbear.methods.er:ER", "ER", "replays random stored images"),
        "er-infinite": Listed(
            "polarbear.methods.er_infinite:ERInfinite",
            "ER-infinite",
            "replays every earlier image with the labels it came with",
            bound=True,
        ),
        "mask-seen": Listed(
            "polarbear.methods.mask_seen:MaskSeen",
            "mask-seen",
            "replays random stored images; only the current task's classes get a loss",
        ),
        "agem": Listed(
            "polarbear.methods.agem:AGEM",
            "A-GEM",
            "projects the gradient so that the loss on stored images does not grow",
            options={"reference_batch_size": 128},
        ),
        "gem": Listed(
            "polarbear.methods.gem:GEM",
            "GEM",
            "projects the gradient so that no earlier task's loss on stored images grows",
            options={"reference_batch_size": 128, "margin": 0.5},
        ),
        "ewc": Listed(
            "polarbear.methods.ewc:EWC",
            "EWC",
            "holds each weight by its Fisher information in earlier tasks; keeps no image",
            options={"strength": 40.0, "decay": 1.0},
        ),
        "si": Listed(
            "polarbear.methods.si:SI",
            "SI",
            "holds each weight by its share in lowering earlier losses; keeps no image",
            options={"strength": 0.2, "damping": 0.1},
        ),
        "mas": Listed(
            "polarbear.methods.mas:MAS",
            "MAS",
            "holds each weight by how much it moves the outputs; keeps no image",
            options={"strength": 1.0},
        ),
        "rwalk": Listed(
            "polarbear.methods.rwalk:RWalk",
            "RWalk",
            "replays random stored images; holds each weight by a running Fisher and its path",
            options={"strength": 2.0, "alpha": 0.9, "interval": 50, "damping": 1e-3},
        ),
        "gdumb": Listed(
            "polarbear.methods.gdumb:GDumb",
            "GDumb",
            "trains from scratch on memory alone after every task",
        ),
        "icarl-cnn": Listed(
            "polarbear.methods.icarl_cnn:ICarlCNN",
            "iCaRL-CNN",
            "distils old classes from the previous network; herded memory",
        ),
        "icarl-norm": Listed(
            "polarbear.methods.icarl_norm:ICarlNorm", "iCaRL-norm", "iCaRL-CNN with a cosine head"
        ),
        "lucir": Listed(
            "polarbear.methods.lucir:LUCIR",
            "LUCIR",
            "keeps features near the previous network's; margin between old and new classes",
            options={
                "lambda_base": 5.0,
                "margin": 0.5,
                "top_k": 2,
                "imprint_images": 1000,
                "margin_moves_sigma": False,
            },
        ),
        "replay": Listed(
            "polarbear.methods.replay:Replay",
            "Replay",
            "replays herded images under one softmax; the class-incremental baseline",
        ),
        "icarl-nme": Listed(
            "polarbear.methods.icarl_nme:ICarlNME",
            "iCaRL-NME",
            "iCaRL as published: distils old classes; predicts by the nearest mean",
        ),
        "eeil": Listed(
            "polarbear.methods.eeil:EEIL",
            "EEIL",
            "distils task by task, then fine-tunes on as many images of every class",
            options={"temperature": 2.0, "balanced_epochs": 30, "balanced_rate": 0.01},
        ),
        "il2m": Listed(
            "polarbear.methods.il2m:IL2M",
            "IL2M",
            "replays herded images; corrects old classes' logits by what they were at first",
        ),
        "wa": Listed(
            "polarbear.methods.wa:WA",
            "WA",
            "distils, then brings new classes' weights to the length of the old ones",
            options={"temperature": 2.0},
        ),
        "bic": Listed(
            "polarbear.methods.bic:BiC",
            "BiC",
            "distils, then corrects the newest classes' logits on images held out",
            options={"temperature": 2.0, "bias_epochs": 100, "bias_rate": 0.01},
        ),
        "lwf": Listed(
            "polarbear.methods.lwf:LwF",
            "LwF",
            "distils old classes from the previous network; stores no image",
            options={"distillation": 1.0, "temperature": 2.0},
        ),
        "lwm": Listed(
            "polarbear.methods.lwm:LwM",
            "LwM",
            "LwF that also distils where the network looks for the likeliest old class",
            options={"distillation": 1.0, "temperature": 2.0, "attention": 1.0},
        ),
        "er-ace": Listed(
            "polarbear.methods.er_ace:ERACE",
            "ER-ACE",
            "replays from a reservoir; new images compete among their batch's classes alone",
        ),
        "derpp": Listed(
            "polarbear.methods.derpp:DERpp",
            "DER++",
            "replays from a reservoir, with the logits images had when they were stored",
            options={"alpha": 0.1, "beta": 0.5, "beside": 128},
        ),
        "ss-il": Listed(
            "polarbear.methods.ss_il:SSIL",
            "SS-IL",
            "separate softmaxes of old and new classes; distils task by task",
            options={"beside": 32, "temperature": 2.0},
        ),
        "podnet": Listed(
            "polarbear.methods.podnet:PODNet",
            "PODNet",
            "keeps pooled maps near the previous network's; ten proxies per class",
            options={
                "spatial": 3.0,
                "flat": 1.0,
                "hinge": False,
                "imprint_images": 1000,
                "tuning_epochs": 20,
                "tuning_rate": 0.05,
            },
        ),
        "hcv": Listed(
            "polarbear.methods.hcv:HCV",
            "HCV",
            "iCaRL-CNN that finds superclasses by what fires, and predicts consistent sets",
            options={"threshold": 0.6},
        ),
        "mtkd": Listed(
            "polarbear.methods.mtkd:MTKD",
            "MTKD",
            "distils from the previous network and from the first; predicts at most k classes",
            options={"first_weight": 1.0, "top_k": 2},
        ),
        "kin": Listed(
            "polarbear.methods.kin:Kin",
            "Kin",
            "finds superclasses by the networks of their birth; a balanced softmax with holes",
            options={
                "first_sigma": 16.0,
                "balance": True,
                "holes": True,
                "distillation": 2.0,
                "temperature": 2.0,
                "parents": True,
                "threshold": 0.8,
                "mirror": True,
                "witnesses": True,
                "caution": 2.0,
                "evidence": 1.0,
                "even": 1.5,
                "unknown_children": True,
            },
        ),
        "ncm": Listed(
            "polarbear.methods.ncm:NCM",
            "NCM",
            "keeps the mean feature of each class; the one nearest in direction is predicted",
            options={"parents": True, "majority": 0.5},
        ),
        "slda": Listed(
            "polarbear.methods.slda:SLDA",
            "SLDA",
            "keeps a mean feature per class and one covariance; a linear discriminant predicts",
            options={"parents": True, "majority": 0.5, "shrinkage": 1e-4},
        ),
        "ranpac": Listed(
            "polarbear.methods.ranpac:RanPAC",
            "RanPAC",
            "a ridge regression on random features, of sums that every task adds to",
            options={"parents": True, "majority": 0.5, "width": 2000, "ridge": 0.0},
        ),
        "joint": Listed(
            "polarbear.methods.joint:Joint",
            "joint",
            "trains on all classes at once with complete labels; the upper bound",
            bound=True,
        ),
        "incremental-joint": Listed(
            "polarbear.methods.incremental_joint:IncrementalJoint",
            "incremental joint",
            "trains on all data so far with complete labels; the upper bound task by task",
            bound=True,
        ),
    }
)


def added() -> dict[str, EntryPoint]:
    """Return the methods that installed packages add; none takes a built-in one's name."""
    found = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
    return {name: found[name] for name in sorted(found) if name not in METHODS}


def method_names() -> tuple[str, ...]:
    """Return the names of the built-in methods and of those that installed packages add.

    >>> method_names()[:3]
    ('finetune', 'er', 'er-infinite')
    """
    return (*METHODS, *added())


def summary(name: str) -> str:
    """Return a line about a method.

    >>> summary("er")
    'replays random stored images'
    """
    if name in METHODS:
        return METHODS[name].summary
    found = added().get(name)
    if found is None:
        raise unknown_name("method", name, method_names())
    return f"from the package {found.dist.name}" if found.dist else f"from {found.value}"


def title(name: str) -> str:
    """Return a method's name as people write it; a class of one's own has its own name.

    >>> title("icarl-norm"), title("package.module:Mine")
    ('iCaRL-norm', 'Mine')
    """
    return METHODS[name].title if name in METHODS else readable(name.rpartition(":")[2])


def is_bound(name: str) -> bool:
    """Whether a method bounds what the others can reach; of those that are not ours, none does."""
    return name in METHODS and METHODS[name].bound
