"""Runs the tests of an unpacked rdma-core and prints a line for each: what came of it, its name, and why it was skipped.

    run.py FOLDER [options of rdma-core's run_tests.py]

FOLDER holds the package `tests`. The lines begin with ok, skip, FAIL or ERROR, which tracebacks follow.
"""

import importlib
import os
import sys
import unittest


class Lines(unittest.TestResult):
    def say(self, outcome, test, why=""):
        print(outcome, test.id(), why.replace("\n", " "), sep="\t", flush=True)

    def addSuccess(self, test):
        self.say("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skip", test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say("FAIL", test)
        print(self.failures[-1][1], flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.say("ERROR", test)
        print(self.errors[-1][1], flush=True)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.say("FAIL", subtest)


def main():
    folder = os.path.abspath(sys.argv.pop(1))
    # The tests import each other as `tests.base` and their options as `args_parser`.
    sys.path[:0] = [folder, os.path.join(folder, "tests")]
    importlib.import_module("args_parser").parser.parse_args()
    found = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("tests"))
    result = Lines()
    found.run(result)
    sys.exit(not result.wasSuccessful())


main()
