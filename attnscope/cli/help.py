"""From a command of the parser's to the page that `--help` draws; loaded only when help is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from attnscope.cli.options.output import MAX_WIDTH, MIN_WIDTH
from attnscope.cli.parsing import ARGS
from attnscope.render.help import Page, Panel, Row, draw_help
from attnscope.render.terminal import ColorChoice, draw_text


def help_text(command: Any, context: Any, panels: Iterable[Panel], examples: Sequence[str]) -> str:
    """The page of a command, as `--width` and `--color` of the same command line want it."""
    about = [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]
    pieces = [context.command_path, *command.collect_usage_pieces(context)]
    page = Page(" ".join(pieces), tuple(part for part in about if part), tuple(panels), tuple(examples))
    words: list[str] = context.meta.get(ARGS, [])
    return draw_text(lambda style: draw_help(style, page), _width(words), _color(words))


def panels_of(parameters: Iterable[Any], context: Any) -> list[Panel]:
    """Arguments, then options by the panel that each names; what names none (`--help`) goes into the last."""
    found: dict[str, list[Row]] = {}
    rest: list[Row] = []
    for one in parameters:
        if getattr(one, "hidden", False):
            continue
        panel = getattr(one, "rich_help_panel", None)
        if getattr(one, "param_type_name", "") == "argument":
            many = "..." if one.nargs != 1 and not str(one.metavar).endswith("...") else ""
            row = Row(f"{one.metavar or one.name.upper()}{many}", one.help or "")
            found.setdefault("Arguments", []).append(row)
        elif panel is None:
            rest.append(_option(one))
        else:
            found.setdefault(panel, []).append(_option(one))
    panels = {title: rows for title, rows in found.items() if title != "Arguments"}
    if rest:
        last = next(reversed(panels), "Options")
        panels.setdefault(last, []).extend(rest)
    ordered = {"Arguments": found["Arguments"], **panels} if "Arguments" in found else panels
    return [Panel(title, tuple(rows)) for title, rows in ordered.items()]


def _option(one: Any) -> Row:
    long = [name for name in one.opts if name.startswith("--")]
    short = next((name for name in one.opts if not name.startswith("--")), "")
    name = "/".join([*long, *one.secondary_opts])
    value = "" if one.is_flag else one.metavar or ""
    return Row(name, one.help or "", short, value) if name else Row(short, one.help or "", "", value)


def _value(words: Sequence[str], option: str) -> str:
    """What an option was given among words that need not make a right command line."""
    for before, word in zip(["", *words], [*words, ""], strict=True):
        if before == option:
            return word
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _width(words: Sequence[str]) -> int | None:
    given = _value(words, "--width")
    return min(max(int(given), MIN_WIDTH), MAX_WIDTH) if given.isdecimal() else None


def _color(words: Sequence[str]) -> ColorChoice:
    given = _value(words, "--color")
    return "always" if given == "always" else "never" if given == "never" else "auto"
