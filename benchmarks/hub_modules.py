"""
Imported first, it leaves out the package's `__init__`, which imports Datasets, pandas and more: each file that travels
to the Hub can then be imported with torch and Transformers alone.
"""

import sys
from pathlib import Path
from types import ModuleType


package = ModuleType("modeling_tempoformer")
package.__path__ = [str(Path(__file__).parents[1] / package.__name__)]
sys.modules[package.__name__] = package
