#!python
"""Becomes the program that the parapet package holds."""

import os
import sys
from importlib.util import find_spec

spec = find_spec("parapet")
if spec is None or not spec.submodule_search_locations:
    sys.exit("parapet: the Python package parapet is not installed here")
program = os.path.join(spec.submodule_search_locations[0], "parapet")
os.environ.setdefault("PARAPET_PYTHON", sys.executable)
os.execv(program, ["parapet", *sys.argv[1:]])
