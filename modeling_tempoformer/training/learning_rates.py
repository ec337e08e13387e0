"""A learning rate of their own for some parameters."""

from collections.abc import Collection

import torch
from torch import nn


def set_learning_rate(optimizer: torch.optim.Optimizer, parameters: Collection[nn.Parameter], learning_rate: float):
    """
    Moves parameters to new groups of the optimizer, which differ from their old ones only in the learning rate.

    Args:
        optimizer (`torch.optim.Optimizer`): Before its first step, and before it gets a scheduler.
        parameters (`Collection[nn.Parameter]`): Parameters that the optimizer does not have are ignored.
        learning_rate (`float`): The learning rate of the new groups.
    """
    wanted = {id(parameter) for parameter in parameters}
    for group in list(optimizer.param_groups):
        own = [parameter for parameter in group["params"] if id(parameter) in wanted]
        if own:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in wanted]
            optimizer.add_param_group({**group, "params": own, "lr": learning_rate})
