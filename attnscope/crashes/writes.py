"""What is written in place: the target of an expression, and the same step out of place."""

from __future__ import annotations

import ast

from attnscope.crashes.scene import Scene

_SIGNS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
}


def target(node: ast.AST | None) -> ast.expr | None:
    """What an in-place expression or statement writes to, or None."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value
    if isinstance(node, ast.Call):
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("_")
            and node.func.attr[-2:] != "__"
        ):
            return node.func.value
        for word in node.keywords:
            if (
                word.arg == "inplace"
                and isinstance(word.value, ast.Constant)
                and word.value.value is True
                and node.args
            ):
                return node.args[0]
    return None


def out_of_place(scene: Scene, node: ast.AST, written: ast.expr) -> str:
    """The same step without writing into memory, in the user's words."""
    name = scene.text(written)
    if isinstance(node, ast.AugAssign):
        sign = _SIGNS.get(type(node.op), "…")
        return f"`{name} = {name} {sign} {scene.text(node.value, 40)}`"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        arguments = ", ".join(scene.text(arg, 40) for arg in node.args)
        plain = node.func.attr[:-1]
        signs = {"mul": "*", "add": "+", "sub": "-", "div": "/"}
        if plain in signs and len(node.args) == 1 and not node.keywords:
            return f"`{name} = {name} {signs[plain]} {arguments}`"
        words = "".join(f", {word.arg}={scene.text(word.value)}" for word in node.keywords)
        return f"`{name} = {name}.{plain}({arguments}{words})`"
    if isinstance(node, ast.Subscript):
        return f"a copy: `{name} = {name}.clone()` before the write, or `torch.where`"
    return "the same step without `inplace=True`"
