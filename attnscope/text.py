"""Text to tokens: encodings, the reading of a text, and pieces that are safe to print.

An encoding is a real `tiktoken.Encoding`. `gpt2` is built from the vocabulary that lies in the package
and `bytes` from nothing; every other name that tiktoken knows comes from tiktoken's own cache, and over
the network only when that is asked for.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

from attnscope.errors import UsageError
from attnscope.schema import Token

if TYPE_CHECKING:
    import tiktoken

MAX_TEXT_BYTES = 2_000_000
"""The longest text that is read: about 500,000 tokens."""

MAX_RUN = 100_000
"""A run of one class of characters (letters, digits, spaces, others) is given to tiktoken in parts of this
many characters: its regular expression overflows its stack on longer ones, and older versions merge in
quadratic time. Only at such a cut can the tokens differ from tiktoken's own."""

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
GPT2_SPECIAL = {"<|endoftext|>": 50256}


# --- encodings ------------------------------------------------------------------------------------------


def gpt2_ranks() -> dict[bytes, int]:
    """The 50,256 mergeable ranks of GPT-2, from the shipped merges.

    The file writes each byte as one visible character: printable Latin-1 as itself, the others as the
    characters from U+0100 on. The 256 bytes come first, in the order of those characters' making.
    """
    path = os.path.join(os.path.dirname(__file__), "data", "gpt2", "vocab.bpe")
    with open(path, encoding="utf-8", newline="\n") as file:
        file.readline()  # the version line
        merges = file.read()
    shown = [byte for byte in range(256) if chr(byte).isprintable() and byte != 0x20]
    hidden = sorted(set(range(256)).difference(shown))
    alphabet = {byte: chr(byte) for byte in shown}
    alphabet.update((byte, chr(0x100 + place)) for place, byte in enumerate(hidden))

    # Every character is one byte, so all merges are turned into bytes in one call and cut by their
    # lengths afterwards: three times faster than one call for each of the 50,000.
    import codecs

    words = merges.replace(" ", "").split("\n")
    words.pop()
    table = codecs.charmap_build("".join(alphabet[byte] for byte in range(256)))
    joined = codecs.charmap_encode("".join(words), "strict", table)[0]
    ends = list(accumulate(map(len, words), initial=0))
    tokens = [bytes((byte,)) for byte in shown + hidden]
    tokens += map(joined.__getitem__, map(slice, ends, ends[1:]))
    return dict(zip(tokens, range(len(tokens)), strict=True))


def _gpt2() -> tiktoken.Encoding:
    import tiktoken

    return tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks=gpt2_ranks(),
        special_tokens=GPT2_SPECIAL,
        explicit_n_vocab=50257,
    )


def _bytes() -> tiktoken.Encoding:
    import tiktoken

    # Without a rank for any pair nothing is ever merged: the ids are the bytes.
    return tiktoken.Encoding(
        "bytes",
        pat_str=r"(?s:.)",
        mergeable_ranks={bytes((byte,)): byte for byte in range(256)},
        special_tokens={},
    )


ENCODINGS: dict[str, Callable[[], tiktoken.Encoding]] = {"gpt2": _gpt2, "bytes": _bytes}
"""The encodings that need no cache and no network."""

_built: dict[str, tiktoken.Encoding] = {}
_lock = threading.Lock()


def get_encoding(name: str, download: bool = False) -> tiktoken.Encoding:
    """The encoding called `name`, built once per process.

    Raises UsageError for an unknown name, and for one that is not in tiktoken's cache unless `download`.
    """
    with _lock:
        if name not in _built:
            builder = ENCODINGS.get(name)
            _built[name] = builder() if builder else _from_tiktoken(name, download)
        return _built[name]


def vocabulary_size(name: str, download: bool = False) -> int:
    """How many rows an embedding needs for the encoding called `name`: its largest id and one."""
    return get_encoding(name, download).max_token_value + 1


def encoding_names() -> tuple[str, ...]:
    """Every name that `get_encoding` knows, the built-in ones first."""
    import tiktoken

    return tuple(dict.fromkeys([*ENCODINGS, *tiktoken.list_encoding_names()]))


def _from_tiktoken(name: str, download: bool) -> tiktoken.Encoding:
    import tiktoken

    if name not in encoding_names():
        raise _unknown_encoding(name)
    try:
        if download:
            return tiktoken.get_encoding(name)
        with _cache_only():
            return tiktoken.get_encoding(name)
    except _NotCachedError as problem:
        raise UsageError(
            f"the encoding {name} is not in tiktoken's cache ({problem})",
            "set TIKTOKEN_CACHE_DIR to a folder that holds it, let --download fetch it, "
            "or take --encoding gpt2",
        ) from None
    except Exception as problem:  # whatever requests, the disk or a plug-in of tiktoken raises
        reason = visible(str(problem).partition("\n")[0] or type(problem).__name__)
        if len(reason) > 160:
            reason = reason[:159] + "…"
        raise UsageError(
            f"the encoding {name} could not be {'downloaded' if download else 'loaded'}: {reason}",
            "--encoding gpt2 needs no network",
        ) from None


def _unknown_encoding(name: str) -> UsageError:
    from tiktoken.model import encoding_name_for_model

    try:
        encoding = encoding_name_for_model(name)
    except KeyError:
        return unknown("encoding", name, encoding_names())
    return UsageError(f"{visible(name)} is a model, not an encoding", f"it uses --encoding {encoding}")


class _NotCachedError(Exception):
    """A file that an encoding needs is not in tiktoken's cache. Says where it was looked for."""


def cache_directory() -> str:
    """Where tiktoken keeps its files; an empty string when its cache is switched off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return os.environ[variable]
    import tempfile

    return os.path.join(tempfile.gettempdir(), "data-gym-cache")


def _read_cached(blobpath: str, expected_hash: str | None = None) -> bytes:
    """What tiktoken's `read_file_cached` does, without its network and without deleting a damaged file."""
    import hashlib

    directory = cache_directory()
    if not directory:
        raise _NotCachedError("switched off: its directory is set to nothing")
    path = os.path.join(directory, hashlib.sha1(blobpath.encode()).hexdigest())
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        raise _NotCachedError(visible(directory)) from None
    if expected_hash and hashlib.sha256(data).hexdigest() != expected_hash:
        raise _NotCachedError(f"{visible(path)} is damaged")
    return data


def _no_network(blobpath: str) -> bytes:
    raise _NotCachedError(f"{visible(blobpath)} would be downloaded")


@contextmanager
def _cache_only() -> Iterator[None]:
    """Within it, tiktoken's constructors find their files in the cache or nowhere.

    tiktoken has no switch for this, so its two readers are replaced for as long as one constructor runs.
    """
    import tiktoken.load as load

    readers = load.read_file_cached, load.read_file
    load.read_file_cached, load.read_file = _read_cached, _no_network
    try:
        yield
    finally:
        load.read_file_cached, load.read_file = readers


# --- text to tokens -------------------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNDECODABLE = re.compile("([\udc80-\udcff])")
_RUN = re.compile(r"\s+|[^\W\d_]+|\d+|(?:[^\w\s]|_)+")


def encode(
    text: str, encoding: str = "gpt2", *, special: bool = False, download: bool = False
) -> tuple[Token, ...]:
    """The tokens of `text`.

    `text` may hold lone surrogates: U+DC80 to U+DCFF stand for the bytes that could not be decoded (as in
    Python's `surrogateescape`) and each becomes a token of that one byte; pairs are joined; any other is
    replaced by U+FFFD. The text of a special token is ordinary text unless `special`.

    Raises UsageError when `text` is empty or the encoding cannot be had.
    """
    if not text:
        raise UsageError("the text is empty", "give at least one character")
    coder = get_encoding(encoding, download)
    known: dict[int, tuple[str, bytes]] = {}
    tokens: list[Token] = []
    for index, identity in enumerate(_ids(well_formed(text), coder, special)):
        if identity not in known:
            raw = coder.decode_single_token_bytes(identity)
            known[identity] = piece(raw), raw
        tokens.append(Token(index, identity, *known[identity]))
    return tuple(tokens)


def well_formed(text: str) -> str:
    """`text` with its surrogates made sense of: pairs joined, undecodable bytes kept, others U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    text = _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        text,
    )
    text = re.sub("[\ud800-\udc7f\udd00-\udfff]", "�", text)
    # Escaped bytes that together are valid UTF-8 (an argument read under LANG=C) become characters.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _ids(text: str, coder: tiktoken.Encoding, special: bool) -> Iterator[int]:
    for part in _UNDECODABLE.split(text):
        if len(part) == 1 and 0xDC80 <= ord(part) <= 0xDCFF:
            yield coder.encode_single_token(part.encode("utf-8", "surrogateescape"))
            continue
        for chunk in _chunks(part):
            if special:
                yield from coder.encode(chunk, allowed_special="all", disallowed_special=())
            else:
                yield from coder.encode_ordinary(chunk)


def _chunks(text: str) -> Iterator[str]:
    """`text` in as few parts as keep every run of one class within MAX_RUN."""
    if len(text) <= MAX_RUN:
        yield text
        return
    start = 0
    for run in _RUN.finditer(text):
        for cut in range(run.start() + MAX_RUN, run.end(), MAX_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]


# --- what can be printed --------------------------------------------------------------------------------

_MARKS = {" ": "·", "\n": "↵", "\t": "→", "\r": r"\r", "\\": r"\\"}
_ASCII_MARKS = {" ": "_", "\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "_": r"\_"}

# Letters and symbols by category that show nothing of themselves, or join with their neighbour: Hangul
# fillers and the later parts of a syllable, the empty Braille cell, skin tones, halves of a flag. The
# marks themselves are here too, so that a piece says without doubt which bytes it stands for.
_UNSEEN = re.compile(
    "[·↵→\u115f-\u11ff\u2800\u3164\ud7b0-\ud7ff\uffa0\U0001d159\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]"
)


def piece(raw: bytes) -> str:
    r"""The bytes of a token in a form that is safe to print and that no terminal interprets.

    Spaces, line ends and tabs are `·`, `↵` and `→`; bytes that are no whole character `\xf0`; controls,
    bidi controls, what has no width, and combining marks without a letter before them `\x1b`, `\u202e`.
    Two different byte strings never have the same piece.
    """
    return _visible(raw.decode("utf-8", "surrogateescape"), _MARKS, ascii_only=False)


def ascii_piece(token: Token) -> str:
    r"""The piece of `token` in ASCII alone: a space is `_` (a real `_` is `\_`), a line end `\n`."""
    return _visible(token.raw.decode("utf-8", "surrogateescape"), _ASCII_MARKS, ascii_only=True)


def visible(text: str) -> str:
    """Any text made safe for one line of a message: as a piece, but spaces stay spaces."""
    return _visible(text, {"\n": r"\n", "\t": r"\t", "\r": r"\r"}, ascii_only=False)


def _visible(text: str, marks: dict[str, str], *, ascii_only: bool) -> str:
    if text.isascii() and text.isalnum():  # nearly every token of English
        return text
    shown: list[str] = []
    after_letter = False
    for character in text:
        category = unicodedata.category(character)
        mark = marks.get(character)
        if mark is not None:
            shown.append(mark)
        elif _prints(character, category, after_letter) and (character.isascii() or not ascii_only):
            shown.append(character)
        else:
            shown.append(_escape(character))
        # One mark on a letter is ordinary writing; a pile of them, or one on nothing, disturbs what is near.
        after_letter = category[0] == "L" and shown[-1] == character
    return "".join(shown)


def _prints(character: str, category: str, after_letter: bool) -> bool:
    if category[0] == "M":
        return after_letter
    return character.isprintable() and not _UNSEEN.match(character)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no whole character
        code -= 0xDC00
        return f"\\x{code:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a `name` that is none of `known`; offers the nearest of them, else all."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name.lower(), names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    shown = visible(name if len(name) <= 60 else name[:59] + "…")
    return UsageError(f"unknown {what} `{shown}`", hint)


# --- reading a text -------------------------------------------------------------------------------------


def read_text(file: str | os.PathLike[str] | None, argument: str | None) -> str:
    """The text to look at: `argument`, or the content of `file`; `-` for either is standard input.

    A file is read as UTF-8, whole, its last line end included; bytes that are no UTF-8 stay in the text as
    surrogates that `encode` turns back into those bytes.

    Raises UsageError when both or neither are given, and when the file is missing, a folder, unreadable,
    empty, larger than MAX_TEXT_BYTES, or no text.
    """
    if file is not None and argument is not None:
        raise UsageError("a text and --file were both given", "give one of them")
    if file is None and argument is None:
        raise UsageError("there is no text", "give TEXT, --file FILE, or - for standard input")
    if argument is not None and argument != "-":
        return argument
    path = "-" if file is None else os.fspath(file)
    name = "standard input" if path == "-" else visible(path)
    raw = _read_standard_input() if path == "-" else _read_file(path, name)
    if len(raw) > MAX_TEXT_BYTES:
        raise UsageError(f"{name} is too large", f"at most {MAX_TEXT_BYTES:,} bytes of text are read")
    if not raw:
        raise UsageError(f"{name} is empty", "give at least one character")
    if kind := _binary(raw):
        raise UsageError(f"{name} is no text: it looks like {kind}", "give a text in UTF-8")
    return raw.decode("utf-8", "surrogateescape")


def _read_standard_input() -> bytes:
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise UsageError("standard input is closed", "give TEXT or --file FILE")
    data: bytes = stream.read(MAX_TEXT_BYTES + 1)
    return data


def _read_file(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file {name}", "give the path of a text file") from None
    except IsADirectoryError:
        raise UsageError(f"{name} is a folder", "give the path of a text file") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(
            f"{name} cannot be read: {visible(reason)}", "give the path of a text file"
        ) from None


_MAGIC = (
    (b"\x93NUMPY", "a NumPy array (--input takes those)"),
    (b"PK\x03\x04", "a zip archive or a PyTorch file (--input takes .pt)"),
    (b"\x80\x02}q", "a pickle"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x1f\x8b\x08", "a gzip archive"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\x0c\x08\x1b")) + b"\x7f"


def _binary(raw: bytes) -> str:
    """What kind of binary data `raw` looks like, empty for text.

    Stray controls and broken UTF-8 are text that someone wants to see; only a longer stretch full of
    controls is not.
    """
    for magic, kind in _MAGIC:
        if raw.startswith(magic) and len(raw) > len(magic):
            return kind
    sample = raw[:8192]
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in sample:
        return "UTF-16"
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return "binary data" if len(sample) >= 512 and controls > len(sample) // 20 else ""
