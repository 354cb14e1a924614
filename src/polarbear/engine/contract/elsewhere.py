"""What this engine would pass over in silence: names of other libraries, and what comes late."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

#: Words that are asked of a method's class, before there is an object of it.
OF_THE_CLASS = ("summary", "title", "head", "joint", "oracle")

#: Functions that are looked for in the class, too.
_RULES = ("decide", "measure", "validation_scores", "inferred_parents", "store")

#: Names of other libraries, and what to do here instead.
_REMEDIES = (
    (
        "forward predict predict_step predict_proba decision_function classify inference",
        "define scores(self, images), and decide(self, scores) for a rule of your own",
    ),
    (
        "training_step train_step train_batch train_epoch train_loop training_epoch train_task "
        "incremental_train observe meta_observe fit partial_fit learn compute_loss criterion",
        "define loss(self, batch), or backward(self, batch, reference) for gradients of your own",
    ),
    (
        "validation_step test_step validate evaluate eval_task eval_epoch eval_step "
        "compute_metrics compute_accuracy",
        "define measure(self, scores, targets), which judges an epoch by validation images",
    ),
    (
        "configure_optimizers configure_optimisers configure_schedulers get_optimizer "
        "make_optimizer optimizer_step lr_scheduler_step",
        "the optimiser is the engine's: use the settings learning_rate, momentum, weight_decay",
    ),
    (
        "on_task_start on_task_begin before_task before_train before_training before_training_exp "
        "task_start start_task pre_train_process on_train_start on_fit_start",
        "define begin_task(self, context)",
    ),
    (
        "on_task_end after_task after_train after_training after_training_exp task_end finish_task "
        "post_train_process on_train_end on_fit_end",
        "define end_task(self)",
    ),
    (
        "on_train_batch_start on_train_batch_end on_train_epoch_start on_train_epoch_end "
        "on_epoch_start on_epoch_end begin_epoch end_epoch before_training_epoch "
        "after_training_epoch before_training_iteration after_training_iteration before_forward "
        "after_forward before_backward after_backward before_update after_update "
        "on_before_zero_grad on_after_backward",
        "a step is loss(self, batch) or backward(self, batch, reference): do it there",
    ),
    (
        "build_rehearsal_memory construct_exemplar_set update_memory fill_buffer reduce_exemplars",
        "the memory is the engine's: say replay = 'mixed' and selection = 'random' or 'herding'",
    ),
    (
        "train_dataloader val_dataloader test_dataloader",
        "the data are the engine's: batches come to loss(self, batch)",
    ),
)

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {name: remedy for names, remedy in _REMEDIES for name in names.split()}
)


def never_called(name: str) -> str:
    """Return what is said of a name of other libraries."""
    return f"the engine never calls {name}: {ELSEWHERE[name]}"


def passed_over(name: str, value: Any) -> str | None:
    """Return why the engine would pass over what a method sets on its object, None if it does not.

    A module is a part of the method, which its own lines call, such as a criterion.
    """
    if isinstance(value, nn.Module):
        return None
    if name in ELSEWHERE and callable(value):
        return never_called(name)
    if name in OF_THE_CLASS or (name in _RULES and callable(value)):
        return f"the engine asks the class for {name}: define it there, instead of self.{name} = …"
    return None
