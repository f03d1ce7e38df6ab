"""Has the messages generated where the package is built from a checkout; a source distribution brings them."""

import sys
from pathlib import Path

from setuptools import setup

if (tools := Path(__file__).resolve().parent / "tools").exists():
    sys.path.insert(0, str(tools))
    __import__("generate").main()
setup()
