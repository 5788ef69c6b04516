"""Runs test files with pytest where it is installed, else with unittest, and counts their tests. Page: bin/test.

Usage: python run_tests.py '{"report": ..., "files": [...], "dir": ..., "entry": ..., "packs": [...]}'"""

import importlib.util
import json
import os
import re
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))


def prepare(plan):
    """The import path of the function, and the folder of `fngw_test`."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(_HERE)))
    from python.loader import import_path

    given = [path for path in sys.path[1:] if os.path.abspath(path or '.') != _HERE]
    sys.path[:] = import_path(plan['entry'], plan['dir'], plan['packs'], given) + [_HERE]
    # What tests start finds the same modules.
    os.environ['PYTHONPATH'] = os.pathsep.join([plan['dir'], os.path.join(plan['dir'], '.deps'), _HERE])


class Chosen:
    """A plugin of pytest that collects these files of a folder and no others."""

    def __init__(self, files):
        self.files = {os.path.realpath(file) for file in files}

    def pytest_ignore_collect(self, collection_path):
        path = os.path.realpath(collection_path)
        if os.path.isdir(path):
            return not any(file.startswith(os.path.join(path, '')) for file in self.files)
        return path not in self.files


class Counter:
    """A plugin of pytest."""

    def __init__(self):
        self.counts = {'passed': 0, 'failed': 0, 'skipped': 0}

    def pytest_collectreport(self, report):
        if report.failed:
            self.counts['failed'] += 1
        elif report.skipped:
            self.counts['skipped'] += 1

    def pytest_runtest_logreport(self, report):
        # Setup and teardown count only when they fail.
        if report.failed or report.when == 'call' or report.skipped:
            self.counts[report.outcome] += 1


def run_pytest(files):
    import pytest

    counter = Counter()
    options = ['--import-mode=importlib', '-p', 'no:cacheprovider']
    plugins = [counter]
    # In arguments of pytest these are no parts of a path, and in routes such as users/[id] they are.
    if any('[' in file or '::' in file for file in files):
        options += ['-o', 'python_files=*.py']
        plugins.append(Chosen(files))
        files = ['.']
    code = int(pytest.main(options + files, plugins=plugins))
    # 0: passed, 1: failed, 5: no tests. The others are about the run itself.
    if code not in (0, 1, 5) and counter.counts['failed'] == 0:
        counter.counts['failed'] = 1
    return counter.counts


def run_unittest(files):
    import unittest

    suite = unittest.TestSuite()
    failed = 0
    for index, file in enumerate(files):
        name = 'test_%d_%s' % (index, re.sub(r'\W', '_', os.path.basename(file)[:-3]))
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            traceback.print_exc()
            failed += 1
            continue
        if any(callable(value) and key.startswith('test') and not isinstance(value, type) for key, value in vars(module).items()):
            sys.stderr.write(
                '%s has test functions, which need pytest: python -m pip install pytest, or write a unittest.TestCase\n' % file
            )
            failed += 1
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    broken = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped) + len(result.expectedFailures)
    # An error in a fixture of a class is not among those that ran.
    passed = max(0, result.testsRun - broken - skipped)
    return {'passed': passed, 'failed': failed + broken, 'skipped': skipped}


def main():
    plan = json.loads(sys.argv[1])
    prepare(plan)
    sys.argv = [plan['entry']]
    runner = run_unittest if importlib.util.find_spec('pytest') is None else run_pytest
    counts = runner(plan['files'])
    with open(plan['report'], 'w') as report:
        json.dump(counts, report)
    return 1 if counts['failed'] else 0


if __name__ == '__main__':
    sys.exit(main())
