"""What the text of a Python file adds to `sys.path`, read without running it: folders that it names plainly, and whether there
is a change that only a run would tell. Part of infer.py. Source: Dependency management; page spec/dependencies/python.md.

    sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))  ->  folder <the file's folder>/../lib
    sys.path.append(os.environ['LIB'])                                        ->  unread in this line
"""

import ast
import os
from collections import Counter

#: Calls that look at a list and leave it as it is.
_LOOKS = frozenset('print len str repr list tuple set sorted any all enumerate reversed join'.split())
_LIST_LOOKS = frozenset('remove pop index count copy clear reverse sort'.split())
#: Functions that give back the path they get, in the spelling they want.
_SAME_PATH = frozenset('abspath realpath normpath fspath str Path PurePath PosixPath resolve absolute as_posix'.split())
#: Names that lead to names that lead to names: so many steps are followed, to texts of so many characters.
_MAX_STEPS = 20
_MAX_CHARS = 4096


def may_change_path(source):
    """A quick look at the bytes of a file: False for nearly all."""
    return b'addsitedir' in source or (b'sys' in source and b'path' in source)



class PathChanges:
    """`folders`: full paths. `unread_line`: the first line with a change that cannot be read, None when there is none."""

    def __init__(self, tree, path, folder):
        self.folders = []
        self.unread_line = None
        self._file = path
        self._cwd = folder
        self._nodes = list(ast.walk(tree))
        self._sys_names, self._path_names = {'sys'}, set()
        #: Value of each name that gets one in one place, and texts that were made of them.
        self._values, self._texts = {}, {}
        self._read_names()
        self._known = set()
        for node in self._nodes:
            self._read(node)
        for node in self._nodes:
            if self._is_unread(node):
                self._note_unread(node)

    def _read_names(self):
        stores = Counter(node.id for node in self._nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        stores.update(node.arg for node in self._nodes if isinstance(node, ast.arg))
        for node in self._nodes:
            if isinstance(node, ast.Import):
                self._sys_names.update(alias.asname for alias in node.names if alias.name == 'sys' and alias.asname)
            elif isinstance(node, ast.ImportFrom) and node.module == 'sys':
                self._path_names.update(alias.asname or alias.name for alias in node.names if alias.name == 'path')
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    # A name with two values has none that could be told.
                    if isinstance(target, ast.Name) and stores[target.id] == 1:
                        self._values[target.id] = node.value

    def _read(self, node):
        if isinstance(node, ast.Call):
            self._read_call(node)
        elif isinstance(node, ast.AugAssign) and self._is_path(node.target):
            self._known.add(node.target)
            self._add_list(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                inner = target.value if isinstance(target, ast.Subscript) else target
                if self._is_path(inner):
                    self._known.add(inner)
                    self._add_list(node.value)
        elif isinstance(node, ast.Compare):
            self._known.update([node.left] + node.comparators)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._known.add(node.iter)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Store):
            self._known.add(node.value)

    def _read_call(self, node):
        func = node.func
        name = _last_name(func)
        if isinstance(func, ast.Attribute) and self._is_path(func.value):
            if name in ('insert', 'append', 'extend') and node.args:
                self._known.add(func.value)
                (self._add_list if name == 'extend' else self._add)(node.args[-1])
            elif name in _LIST_LOOKS:
                self._known.add(func.value)
        elif name in _LOOKS:
            self._known.update(node.args)
        elif name == 'addsitedir':
            # The files in it may name more folders.
            if node.args:
                self._add(node.args[0])
            self._note_unread(node)

    def _add_list(self, node):
        """What becomes part of the list, or the whole list."""
        if isinstance(node, (ast.List, ast.Tuple)):
            for one in node.elts:
                self._add(one.value if isinstance(one, ast.Starred) and self._is_path(one.value) else one)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            self._add_list(node.left)
            self._add_list(node.right)
        else:
            self._add(node)

    def _add(self, node):
        if isinstance(node, ast.Subscript) and self._is_path(node.value):
            return
        if self._is_path(node):
            self._known.add(node)
            return
        value = self._evaluate(node, 0)
        if value is None:
            self._note_unread(node)
        else:
            self.folders.append(os.path.normpath(os.path.join(self._cwd, value)))

    def _is_path(self, node):
        if isinstance(node, ast.Attribute):
            return node.attr == 'path' and isinstance(node.value, ast.Name) and node.value.id in self._sys_names
        return isinstance(node, ast.Name) and node.id in self._path_names

    def _is_unread(self, node):
        if isinstance(node, ast.Attribute) and node.attr in ('meta_path', 'path_hooks'):
            return isinstance(node.value, ast.Name) and node.value.id in self._sys_names
        return self._is_path(node) and node not in self._known

    def _note_unread(self, node):
        if self.unread_line is None or node.lineno < self.unread_line:
            self.unread_line = node.lineno

    def _evaluate(self, node, steps):
        """The text of an expression; None when it has none before a run."""
        if steps > _MAX_STEPS:
            return None
        read = lambda inner: self._evaluate(inner, steps + 1)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            if node.id == '__file__':
                return self._file
            if node.id not in self._texts and node.id in self._values:
                text = read(self._values[node.id])
                self._texts[node.id] = None if text is None or len(text) > _MAX_CHARS else text
            return self._texts.get(node.id)
        if isinstance(node, ast.JoinedStr):
            return _join_texts([read(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values])
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
            sides = [read(node.left), read(node.right)]
            return _join_paths(sides) if isinstance(node.op, ast.Div) else _join_texts(sides)
        if isinstance(node, ast.Attribute):
            if node.attr == 'parent':
                return _upwards(read(node.value), 1)
            return {'pardir': '..', 'curdir': '.', 'sep': '/'}.get(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == 'parents':
            index = getattr(node.slice, 'value', None)
            index = getattr(index, 'value', index)
            return _upwards(read(node.value.value), index + 1) if isinstance(index, int) and 0 <= index < 50 else None
        return self._evaluate_call(node, read) if isinstance(node, ast.Call) else None

    def _evaluate_call(self, node, read):
        name, args = _last_name(node.func), node.args
        # `Path(x).resolve()`: a method of what is read, or a function of a module with an argument.
        is_method = isinstance(node.func, ast.Attribute) and not args
        if name == 'getcwd' or (name == 'cwd' and not args):
            return self._cwd
        if name == 'dirname' and len(args) == 1:
            return _upwards(read(args[0]), 1)
        if name == 'joinpath':
            return _join_paths([read(node.func.value)] + [read(one) for one in args])
        if name == 'join':
            return _join_paths([read(one) for one in args])
        if name in _SAME_PATH and (is_method or len(args) == 1):
            return read(node.func.value if is_method else args[0])
        return None


def _last_name(func):
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, 'id', None)


def _join_texts(parts):
    return None if None in parts else ''.join(parts)


def _join_paths(parts):
    return None if not parts or None in parts else os.path.join(*parts)


def _upwards(path, steps):
    for _ in range(steps):
        path = None if path is None else os.path.dirname(path)
    return path
