"""RDMA in userspace, for Python programs and their tests.

``run`` starts a program over urxe, ``environment`` returns the variables for other ways to start
programs, and ``install`` serves the running process. The package also has a plugin for pytest.
"""
from urxe._build import VERSION as __version__
from urxe._command import UrxeError
from urxe._environment import environment, run
from urxe._process import install

__all__ = ["UrxeError", "__version__", "environment", "install", "run"]
