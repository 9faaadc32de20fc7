"""Runs the tests of an unpacked rdma-core. Prints result, name and reason of a skip of each test.

    run.py FOLDER [options of rdma-core's run_tests.py]

FOLDER contains the package `tests`. The result is ok, skip, FAIL or ERROR. A traceback follows the
lines with FAIL and ERROR.
"""

import importlib
import multiprocessing
import os
import sys
import unittest


class Lines(unittest.TestResult):
    def print_line(self, outcome, test, why=""):
        print(outcome, test.id(), why.replace("\n", " "), sep="\t", flush=True)

    def addSuccess(self, test):
        self.print_line("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.print_line("skip", test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.print_line("FAIL", test)
        print(self.failures[-1][1], flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.print_line("ERROR", test)
        print(self.errors[-1][1], flush=True)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.print_line("FAIL", subtest)


def main():
    # A test gives its open device to child processes. Python 3.14 would start them without fork.
    multiprocessing.set_start_method("fork")
    folder = os.path.abspath(sys.argv.pop(1))
    # The tests import each other as `tests.base`, and their options as `args_parser`.
    sys.path[:0] = [folder, os.path.join(folder, "tests")]
    importlib.import_module("args_parser").parser.parse_args()
    found = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("tests"))
    result = Lines()
    found.run(result)
    sys.exit(not result.wasSuccessful())


main()
