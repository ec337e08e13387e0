"""
Runs a script, whose arguments follow, so that FSDP shards on a CPU, where Accelerate would use DDP instead: once its
processes are connected, it takes them for GPUs.
"""

import runpy
import sys
from pathlib import Path

from accelerate.state import PartialState
from accelerate.utils import DistributedType


connect = PartialState.__init__


def connect_as_gpus(self, *args, **kwargs):
    connect(self, *args, **kwargs)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self._shared_state["distributed_type"] = DistributedType.MULTI_GPU


PartialState.__init__ = connect_as_gpus
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
