"""The harness of operator tests: `OpTest` for operators, `OptimizerTest` for update operators.

For packages that bring operators of their own, and for the tests of this one. Needs pytest. May
import framework and what is below; nothing else of the package imports it.
"""

from .op_test import Case, OpTest
from .optimizer_test import OptimizerTest

__all__ = ["Case", "OpTest", "OptimizerTest"]
