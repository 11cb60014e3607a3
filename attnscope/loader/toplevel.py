"""Which top-level statements of a file may run when only a class of it is wanted.

A training script without a main guard trains when it is imported. So a file whose top level does
anything but import, define and assign is loaded statement by statement: imports, definitions and simple
assignments run, the rest does not.
"""

from __future__ import annotations

import ast

_BLOCKED_CALLS = {
    "input",
    "open",
    "exec",
    "eval",
    "exit",
    "quit",
    "parse_args",
    "parse_known_args",
    "backward",
    "step",
    "zero_grad",
    "train",
    "fit",
    "load_dataset",
    "load",
    "read",
    "readlines",
    "read_text",
    "urlopen",
    "urlretrieve",
    "system",
    "run",
    "Popen",
    "check_output",
    "check_call",
    "call",
    "init_process_group",
    "from_pretrained",
    "generate",
    "cuda",
    "launch",
    "Fire",
    "main",
    "sleep",
    "savefig",
    "show",
    "save",
    "read_csv",
    "makedirs",
    "mkdir",
    "remove",
    "rmtree",
    "unlink",
    "to",
    "compile",
}
_HARMLESS_ROOTS = {
    "logging",
    "logger",
    "log",
    "warnings",
    "sys",
    "os",
    "np",
    "numpy",
    "random",
    "typing",
    "functools",
    "itertools",
    "re",
    "math",
    "collections",
    "dataclasses",
    "matplotlib",
    "plt",
    "transformers",
    "contextlib",
}
_HARMLESS_CALLS = {
    "print",
    "manual_seed",
    "seed",
    "set_printoptions",
    "set_default_dtype",
    "set_float32_matmul_precision",
    "filterwarnings",
    "simplefilter",
    "append",
    "extend",
    "insert",
    "update",
    "setattr",
    "setdefault",
    "register",
    "wrap",
    "allow_in_graph",
    "load_dotenv",
    "set_verbosity_error",
    "addHandler",
    "setLevel",
    "basicConfig",
    "add",
}
_SIMPLE_ROOTS = {
    "torch",
    "nn",
    "F",
    "math",
    "np",
    "numpy",
    "os",
    "Path",
    "pathlib",
    "typing",
    "partial",
    "functools",
}
_SIMPLE_CALLS = {
    "int",
    "float",
    "str",
    "bool",
    "len",
    "range",
    "list",
    "dict",
    "set",
    "tuple",
    "sorted",
    "frozenset",
    "max",
    "min",
    "sum",
    "abs",
    "round",
    "zip",
    "enumerate",
    "map",
    "isinstance",
    "hasattr",
    "getattr",
    "TypeVar",
    "NewType",
    "namedtuple",
    "NamedTuple",
    "getLogger",
    "get_logger",
    "partial",
    "deque",
    "defaultdict",
    "OrderedDict",
    "Counter",
    "SimpleNamespace",
    "device",
}


def runs_only_definitions(tree: ast.Module) -> bool:
    """True when nothing at the top level does more than import, define, assign or register."""
    return all(_harmless(node) for node in tree.body)


def definitions(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a script that may run: imports, definitions, simple assignments, in order."""
    kept: list[ast.stmt] = []
    for node in tree.body:
        kept.extend(_kept(node))
    return kept


def is_main_guard(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test)
    )


def _calls(node: ast.AST) -> list[ast.Call]:
    """Calls that run when the statement runs: not those inside functions that it defines."""
    found: list[ast.Call] = []
    todo: list[ast.AST] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(item, ast.Call):
            found.append(item)
        todo.extend(ast.iter_child_nodes(item))
    return found


def _called(call: ast.Call) -> tuple[str, str]:
    """Root and last name of what is called: (`torch`, `load`) for `torch.hub.load(…)`."""
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    while isinstance(func, (ast.Attribute, ast.Call, ast.Subscript)):
        func = func.func if isinstance(func, ast.Call) else func.value
    return (func.id if isinstance(func, ast.Name) else "", last)


def _blocked(node: ast.AST) -> bool:
    return any(_called(c)[1] in _BLOCKED_CALLS for c in _calls(node))


def _harmless(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global() | ast.Delete() | ast.Assert():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return not _blocked(node)
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr():
            calls = _calls(node)
            known = all(
                _called(c)[1] in _HARMLESS_CALLS
                or _called(c)[1] in _SIMPLE_CALLS
                or _called(c)[0] in _HARMLESS_ROOTS
                for c in calls
            )
            return known and not _blocked(node)
        case ast.If():
            return is_main_guard(node) or (
                not _blocked(node.test) and all(map(_harmless, node.body + node.orelse))
            )
        case ast.Try():
            inside = node.body + node.orelse + node.finalbody + [s for h in node.handlers for s in h.body]
            return all(_harmless(s) or isinstance(s, ast.Raise) for s in inside)
        case ast.For():
            return not _blocked(node.iter) and all(map(_harmless, node.body + node.orelse))
        case ast.With():
            return all("suppress" in ast.unparse(i.context_expr) for i in node.items) and all(
                map(_harmless, node.body)
            )
        case _:
            return False


def _kept(node: ast.stmt) -> list[ast.stmt]:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node]
        case ast.Assign() | ast.AnnAssign():
            return [node] if _simple(node) else []
        case ast.If() if not is_main_guard(node):
            if _harmless(node):
                return [node]
            return [s for child in node.body + node.orelse for s in _kept(child)]
        case ast.Try() if _harmless(node):
            return [node]
        case ast.Try() | ast.With():
            return [s for child in node.body for s in _kept(child)]
        case ast.Expr() if _harmless(node) and not isinstance(node.value, ast.Constant):
            return [node] if all(_called(c)[1] != "print" for c in _calls(node)) else []
        case _:
            return []


def _simple(node: ast.stmt) -> bool:
    return all(
        (_called(c)[0] in _SIMPLE_ROOTS and _called(c)[1] not in _BLOCKED_CALLS)
        or _called(c)[1] in _SIMPLE_CALLS
        or _called(c)[1].endswith(("Config", "Args", "Settings"))
        for c in _calls(node)
    )
