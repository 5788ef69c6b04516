"""Which packages Python files import, by the interpreter's own parser and list of standard modules. A program of its own,
run by the gateway: JSON on standard input and output. Source: Dependency management; page spec/dependencies/python.md.

    {"read": [{"entry": "/root/fn/handler.py", "folder": "/root/fn", "root": "/root"}, ...]}
        -> [[{"name": "requests", "file": "/root/fn/handler.py", "line": 3, "optional": false, "doubt": null}, ...], ...]
    {"find": ["yaml", ...]}  ->  names of those that this interpreter has without any package of the function

`doubt`, for a name that may be a file which is not where this looked, and not a package of the index:
    {"file": "/root/_lib/helper.py", "line": null}  a file of that name lies in a folder above
    {"file": "/root/fn/handler.py", "line": 3}      this line changes `sys.path` in a way that only a run would tell
"""

import ast
import functools
import importlib.util
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, _HERE)
from path_changes import PathChanges, may_change_path  # noqa: E402

# The folder of this script holds modules of the runtime; it is no place for packages.
sys.path[:] = [path for path in sys.path if path != _HERE]

#: Files of one function that are read, and bytes of one.
MAX_FILES = 200
MAX_BYTES = 2 * 1024 * 1024
#: Folders that one file adds to the search for modules.
MAX_PLACES = 20
#: Exceptions whose handler makes an import optional.
_CAUGHT = frozenset(('ImportError', 'ModuleNotFoundError', 'Exception', 'BaseException'))


def _standard_names():
    names = set(sys.builtin_module_names) | {'__future__', '__main__'}
    known = getattr(sys, 'stdlib_module_names', None)
    if known is not None:
        return names | set(known)
    # Before Python 3.10: what lies in the folder of the library.
    folder = os.path.dirname(os.__file__)
    for place in (folder, os.path.join(folder, 'lib-dynload')):
        if os.path.isdir(place):
            names.update(name.split('.')[0] for name in os.listdir(place) if name != 'site-packages')
    return names


class Reader:
    """The imports of one function: of its handler, and of the modules beside it that the handler imports."""

    def __init__(self, entry, folder, root, standard):
        self._standard = standard
        self._folder = folder
        self._root = root
        self._places = [os.path.dirname(entry)]
        if folder not in self._places:
            self._places.append(folder)
        #: First line of all files with a change of `sys.path` that cannot be read.
        self._unread = None
        self._waiting = [entry]
        self._read = set()
        self.found = {}

    def run(self):
        while self._waiting and len(self._read) < MAX_FILES:
            path = self._waiting.pop(0)
            if path not in self._read:
                self._read.add(path)
                self._read_file(path)
            if not self._waiting:
                # A file that was read later may have added the folder that a name comes from.
                self.found = {name: one for name, one in self.found.items() if not self._follow(name)}
        for one in self.found.values():
            one['doubt'] = self._unread or self._find_above(one['name'])
        return list(self.found.values())

    def _read_file(self, path):
        try:
            if os.path.getsize(path) > MAX_BYTES:
                return
            with open(path, 'rb') as file:
                source = file.read()
            tree = ast.parse(source, path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            # The worker tells what is wrong with the file.
            return
        if may_change_path(source):
            self._read_changes(tree, path)
        self._walk(tree, path)

    def _read_changes(self, tree, path):
        try:
            changes = PathChanges(tree, path, self._folder)
            folders, unread_line = changes.folders, changes.unread_line
        except RecursionError:
            folders, unread_line = [], 1
        self._places.extend(folder for folder in folders[:MAX_PLACES] if folder not in self._places)
        if unread_line is not None and self._unread is None:
            self._unread = {'file': path, 'line': unread_line}

    def _find_above(self, name):
        """A module of that name in a folder above, up to the functions root, or in a private folder there: the import of a file
        that is not found must not become the install of whatever has its name."""
        inside = self._folder + os.sep
        at = self._folder
        while at.startswith(self._root) and len(at) > 1:
            for place in [at] + _private_folders(at):
                base = os.path.join(place, name)
                for file in (base + '.py', os.path.join(base, '__init__.py')):
                    # The function's own folder is called as its author likes.
                    if os.path.isfile(file) and not inside.startswith(base + os.sep):
                        return {'file': file, 'line': None}
            at = os.path.dirname(at)
        return None

    def _walk(self, tree, path):
        # By hand: files may be nested deeper than Python calls.
        stack = [(tree, False)]
        while stack:
            node, optional = stack.pop()
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._note(alias.name, path, node.lineno, optional)
            elif isinstance(node, ast.ImportFrom):
                if node.level == 0 and node.module:
                    self._note(node.module, path, node.lineno, optional)
                elif node.level > 0:
                    self._follow_relative(node, path)
            elif isinstance(node, ast.If) and _is_type_checking(node.test):
                stack.extend((child, optional) for child in node.orelse)
            elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
                stack.extend((child, True) for child in node.body)
                stack.extend((child, True) for handler in node.handlers for child in handler.body)
                stack.extend((child, optional) for child in node.orelse + node.finalbody)
            else:
                stack.extend((child, optional) for child in ast.iter_child_nodes(node))

    def _note(self, module, path, line, optional):
        name = module.split('.')[0]
        if name in self._standard or self._follow(name):
            return
        known = self.found.get(name)
        if known is None or (known['optional'] and not optional):
            self.found[name] = {'name': name, 'file': path, 'line': line, 'optional': optional}
        elif known['optional'] == optional and (known['file'], known['line']) > (path, line):
            known.update(file=path, line=line)

    def _follow(self, name):
        """True for a module beside the handler, which is read too."""
        for place in self._places:
            base = os.path.join(place, name)
            if os.path.isfile(base + '.py'):
                if self._is_own(base):
                    self._waiting.append(base + '.py')
                return True
            if os.path.isdir(base):
                if self._is_own(base):
                    self._follow_folder(base)
                return True
        return False

    def _is_own(self, path):
        """False for what a changed `sys.path` has outside the functions root: no package, and not for the gateway to read."""
        return path.startswith((self._folder + os.sep, self._root + os.sep))

    def _follow_folder(self, folder):
        for here, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != '__pycache__' and not name.startswith('.'))
            for name in sorted(files):
                if len(self._waiting) >= MAX_FILES:
                    return
                if name.endswith('.py'):
                    self._waiting.append(os.path.join(here, name))

    def _follow_relative(self, node, path):
        base = os.path.dirname(path)
        for _ in range(node.level - 1):
            base = os.path.dirname(base)
        inner = node.module.split('.') if node.module else []
        for names in [inner] + [inner + [alias.name] for alias in node.names]:
            file = os.path.join(base, *names) + '.py'
            if names and os.path.isfile(file):
                self._waiting.append(file)


@functools.lru_cache(maxsize=None)
def _private_folders(folder):
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith('_') and name != '__pycache__')
    except OSError:
        return []
    return [path for path in (os.path.join(folder, name) for name in names) if os.path.isdir(path)]


def _is_type_checking(test):
    return (isinstance(test, ast.Name) and test.id == 'TYPE_CHECKING') or (
        isinstance(test, ast.Attribute) and test.attr == 'TYPE_CHECKING'
    )


def _catches(handler):
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _CAUGHT) for kind in kinds)


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def main():
    asked = json.load(sys.stdin)
    if 'find' in asked:
        answer = [name for name in asked['find'] if _is_there(name)]
    else:
        standard = _standard_names()
        answer = [Reader(one['entry'], one['folder'], one['root'], standard).run() for one in asked['read']]
    json.dump(answer, sys.stdout)


if __name__ == '__main__':
    main()
