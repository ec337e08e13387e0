"""Learning rates of their own for some parameters."""

from collections.abc import Collection

import torch
from torch import nn


def set_learning_rate(optimizer: torch.optim.Optimizer, parameters: Collection[nn.Parameter], learning_rate: float):
    """
    Moves parameters to groups of their own, which differ in the learning rate only.

    Args:
        optimizer (`torch.optim.Optimizer`): Before its first step and before a scheduler is made for it.
        parameters (`Collection[nn.Parameter]`): Those that get the rate; others than the optimizer's are passed over.
        learning_rate (`float`): Their rate.
    """
    wanted = {id(parameter) for parameter in parameters}
    for group in list(optimizer.param_groups):
        own = [parameter for parameter in group["params"] if id(parameter) in wanted]
        if own:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in wanted]
            optimizer.add_param_group({**group, "params": own, "lr": learning_rate})
