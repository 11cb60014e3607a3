"""Tokens: against tiktoken's own hashes, by exact round trips, and with text that means harm."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import socket
import subprocess
import sys
import unicodedata
from importlib.resources import files
from pathlib import Path

import pytest
import tiktoken
import tiktoken.load
import tiktoken.registry
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope import text
from attnscope.errors import UsageError
from attnscope.schema import Token

# The hashes that tiktoken pins for OpenAI's two files of these merges.
VOCAB_SHA = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
R50K_SHA = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
R50K_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"

HOSTILE = [
    "[bold]x[/bold] [link=http://a]b[/link] :smile:",
    "\x1b[31mred\x1b[0m \x1b]8;;http://a\x07link\x1b]8;;\x07 \x9b2J",
    "a\x00b\x07\x08\x7f",
    "\ud800 \udfff \ud83d\ude00 a\udcff\udcf0\udc9f",
    "\u202eevil\u2066\u200b\u200d\ufeff\u2028\u2029",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 é e\u0301\u0301\u0301 ㅤ\u1160⠀",
    "<|endoftext|>",
    "\t \r\n  \n\\ \\xf0 · ↵ → _ \xa0\u3000",
    "नमस्ते שלום 你好",
]


def raw_of(tokens: tuple[Token, ...]) -> bytes:
    return b"".join(token.raw for token in tokens)


def pieces(source: str, encoding: str = "gpt2") -> list[str]:
    return [token.piece for token in text.encode(source, encoding)]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of tiktoken's, no encoding in memory, and no network at all."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setattr(text, "_built", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def r50k_file() -> bytes:
    ranks = sorted(text.gpt2_ranks().items(), key=lambda item: item[1])
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks)


# --- encodings


def test_the_shipped_vocabulary_is_the_published_one() -> None:
    data = (files("attnscope") / "data" / "gpt2" / "vocab.bpe").read_bytes()
    assert hashlib.sha256(data).hexdigest() == VOCAB_SHA
    assert VOCAB_SHA in (files("attnscope") / "data" / "gpt2" / "README.md").read_text()


def test_ranks_are_the_ones_that_tiktoken_pins() -> None:
    assert hashlib.sha256(r50k_file()).hexdigest() == R50K_SHA


def test_gpt2_is_a_tiktoken_encoding_with_its_special_token() -> None:
    coder = text.get_encoding("gpt2")
    assert type(coder) is tiktoken.Encoding
    assert coder.name == "gpt2"
    assert coder.eot_token == 50256
    assert text.vocabulary_size("gpt2") == coder.n_vocab == 50257
    assert text.get_encoding("gpt2") is coder


def test_gpt2_splits_as_the_release_does() -> None:
    # The pattern of the original release; the one in use is its faster equivalent.
    original = r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    slow = tiktoken.Encoding(
        "slow", pat_str=original, mergeable_ranks=text.gpt2_ranks(), special_tokens=text.GPT2_SPECIAL
    )
    for source in [*HOSTILE, "I'll don't 'S x  y\n\n z 1234 ½ !?...   "]:
        well_formed = source.encode("utf-8", "replace").decode()
        assert [token.id for token in text.encode(well_formed)] == slow.encode_ordinary(well_formed)


def test_the_sentence_of_the_book() -> None:
    tokens = text.encode("Your journey starts with one step")
    assert [token.id for token in tokens] == [7120, 7002, 4940, 351, 530, 2239]
    assert [token.index for token in tokens] == [0, 1, 2, 3, 4, 5]
    assert [token.piece for token in tokens] == ["Your", "·journey", "·starts", "·with", "·one", "·step"]
    assert [token.raw for token in tokens][:2] == [b"Your", b" journey"]


def test_bytes_are_their_own_ids() -> None:
    assert text.vocabulary_size("bytes") == 256
    assert [token.id for token in text.encode("aé\udcff\n", "bytes")] == [97, 0xC3, 0xA9, 0xFF, 10]
    every = bytes(range(256)).decode("utf-8", "surrogateescape")
    assert [token.id for token in text.encode(every, "bytes")] == list(range(256))


def test_special_tokens_are_text_unless_asked_for() -> None:
    assert [token.id for token in text.encode("<|endoftext|>")] == [27, 91, 437, 1659, 5239, 91, 29]
    (token,) = text.encode("<|endoftext|>", special=True)
    assert (token.id, token.piece, token.raw) == (50256, "<|endoftext|>", b"<|endoftext|>")
    assert raw_of(text.encode("<|endoftext|>", "bytes", special=True)) == b"<|endoftext|>"


def test_empty_text_is_an_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        text.encode("")


def test_other_encodings_come_from_the_cache_alone(fresh: Path) -> None:
    (fresh / hashlib.sha1(R50K_URL.encode()).hexdigest()).write_bytes(r50k_file())
    source = "Your journey\n\n starts: 😀\udcff"
    assert text.encode(source, "r50k_base") == text.encode(source, "gpt2")
    assert text.vocabulary_size("r50k_base") == 50257


def test_an_encoding_that_is_not_cached_names_the_variable_and_the_way(fresh: Path) -> None:
    readers = tiktoken.load.read_file, tiktoken.load.read_file_cached
    with pytest.raises(UsageError) as error:
        text.encode("a", "cl100k_base")
    assert str(fresh) in error.value.message
    assert "TIKTOKEN_CACHE_DIR" in error.value.hint
    assert "--download" in error.value.hint
    assert "\n" not in str(error.value)
    assert (tiktoken.load.read_file, tiktoken.load.read_file_cached) == readers


def test_a_damaged_cache_is_told_and_left_alone(fresh: Path) -> None:
    path = fresh / hashlib.sha1(R50K_URL.encode()).hexdigest()
    path.write_bytes(b"YQ== 0\n")
    with pytest.raises(UsageError, match="damaged"):
        text.get_encoding("r50k_base")
    assert path.read_bytes() == b"YQ== 0\n"


def test_a_cache_that_is_switched_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(UsageError, match="switched off"):
        text.get_encoding("r50k_base")


def test_the_older_cache_variable_is_known(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", "/elsewhere")
    assert text.cache_directory() == "/elsewhere"
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    assert Path(text.cache_directory()).name == "data-gym-cache"


def test_download_fetches_and_fills_the_cache(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return r50k_file()

    monkeypatch.setattr(tiktoken.load, "read_file", fetch)
    assert text.get_encoding("r50k_base", download=True).n_vocab == 50257
    assert asked == [R50K_URL]
    assert [path.name for path in fresh.iterdir()] == [hashlib.sha1(R50K_URL.encode()).hexdigest()]


def test_a_download_that_fails_is_one_line(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> bytes:
        raise OSError("no route\nto \x1b[31mhost")

    monkeypatch.setattr(tiktoken.load, "read_file", fail)
    with pytest.raises(UsageError) as error:
        text.get_encoding("r50k_base", download=True)
    assert error.value.message == "the encoding r50k_base could not be downloaded: no route"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt-2x", "gpt2"),
        ("cl100k", "cl100k_base"),
        ("zzz", "known: gpt2, bytes, "),
        ("gpt-4o", "o200k_base"),
    ],
)
def test_unknown_encodings_offer_what_is_near(fresh: Path, name: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        text.encode("a", name)
    assert hint in error.value.hint


# --- text that means harm


@pytest.mark.parametrize("source", HOSTILE)
@pytest.mark.parametrize("encoding", ["gpt2", "bytes"])
def test_hostile_text_keeps_its_bytes(source: str, encoding: str) -> None:
    assert raw_of(text.encode(source, encoding)) == text.well_formed(source).encode(
        "utf-8", "surrogateescape"
    )


def test_surrogates_are_bytes_pairs_or_replaced() -> None:
    assert raw_of(text.encode("a\udcffb")) == b"a\xffb"
    assert raw_of(text.encode("\ud83d\ude00")) == "😀".encode()
    assert raw_of(text.encode("x\ud800y\udfff")) == "x\ufffdy\ufffd".encode()
    # Bytes that came in one by one but are a character are a character: the same tokens.
    escaped = "é😀".encode().decode("ascii", "surrogateescape")
    assert text.encode(escaped) == text.encode("é😀")


@settings(max_examples=150, deadline=None, database=None)
@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_round_trip(raw: bytes) -> None:
    source = raw.decode("utf-8", "surrogateescape")
    assert raw_of(text.encode(source)) == raw
    assert raw_of(text.encode(source, "bytes")) == raw


@settings(max_examples=150, deadline=None, database=None)
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_valid_text_gives_the_tokens_of_tiktoken(source: str) -> None:
    assert [token.id for token in text.encode(source)] == text.get_encoding("gpt2").encode_ordinary(source)


@pytest.mark.parametrize("run", ["a", " ", "\n", "7", "!", "é", "😀", "\udcff", "ab ", "_-"])
def test_a_hundred_thousand_characters_are_exact(run: str) -> None:
    source = (run * 100_000)[:100_000]
    tokens = text.encode(source)
    assert raw_of(tokens) == source.encode("utf-8", "surrogateescape")
    if run != "\udcff":
        assert [token.id for token in tokens] == text.get_encoding("gpt2").encode_ordinary(source)


@pytest.mark.parametrize("run", [" ", "z", "9"])
def test_a_run_too_long_for_tiktoken_is_cut(run: str) -> None:
    source = "a " + run * (3 * text.MAX_RUN // 2) + "\nb"
    assert raw_of(text.encode(source)) == source.encode()
    assert max(len(part) for part in text._chunks(source)) <= text.MAX_RUN + 3
    assert "".join(text._chunks(source)) == source


def test_a_long_text_without_a_long_run_is_not_cut() -> None:
    source = "one step " * 20_000
    assert list(text._chunks(source)) == [source]


# --- pieces

_ESCAPES = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})|\\(.)|(.)", re.DOTALL)


def bytes_of_piece(shown: str, space: str) -> bytes:
    """An independent reading of a piece back into bytes."""
    marks = {space: b" ", "↵": b"\n", "→": b"\t"}
    letters = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "_": b"_"}
    out = b""
    for byte, short, long, letter, plain in _ESCAPES.findall(shown):
        if byte:
            out += bytes.fromhex(byte)
        elif short or long:
            out += chr(int(short or long, 16)).encode()
        elif letter:
            out += letters[letter]
        else:
            out += marks.get(plain, plain.encode())
    return out


@settings(max_examples=300, deadline=None, database=None)
@given(st.one_of(st.binary(max_size=12), st.text(st.characters(codec="utf-8"), max_size=8).map(str.encode)))
def test_a_piece_says_exactly_which_bytes(raw: bytes) -> None:
    assert bytes_of_piece(text.piece(raw), "·") == raw
    assert bytes_of_piece(text.ascii_piece(Token(0, 0, "", raw)), "_") == raw


def test_no_character_of_a_piece_can_disturb_a_terminal() -> None:
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code <= 0xDFFF:
            continue
        shown = text.piece(chr(code).encode())
        if len(shown) == 1 and code > 0x7E:
            assert shown.isprintable()
            assert unicodedata.category(shown)[0] in "LNPS"
        else:
            assert shown.isascii() or shown in "·↵→"
            assert shown.isprintable()


@pytest.mark.parametrize(
    ("raw", "shown", "ascii_shown"),
    [
        (b" a b", "·a·b", "_a_b"),
        (b"\n", "↵", r"\n"),
        (b"\r\n\t", r"\r↵→", r"\r\n\t"),
        (b"\xf0\x9f\x98", r"\xf0\x9f\x98", r"\xf0\x9f\x98"),
        ("é你".encode(), "é你", r"\u00e9\u4f60"),
        (b"\x1b[31m\x00\x7f", r"\x1b[31m\x00\x7f", r"\x1b[31m\x00\x7f"),
        ("\u202e\u200d\u0085\u00a0".encode(), r"\u202e\u200d\u0085\u00a0", r"\u202e\u200d\u0085\u00a0"),
        ("\u0301".encode(), r"\u0301", r"\u0301"),
        ("e\u0301\u0301".encode(), "e\u0301" + r"\u0301", r"e\u0301\u0301"),
        ("👍🏽".encode(), "👍" + r"\U0001f3fd", r"\U0001f44d\U0001f3fd"),
        (b"a_b\\", "a_b" + "\\\\", r"a\_b" + "\\\\"),
        ("·→".encode(), r"\u00b7\u2192", r"\u00b7\u2192"),
        (b"[bold]", "[bold]", "[bold]"),
    ],
)
def test_pieces(raw: bytes, shown: str, ascii_shown: str) -> None:
    assert text.piece(raw) == shown
    assert text.ascii_piece(Token(0, 0, shown, raw)) == ascii_shown


def test_broken_characters_are_shown_byte_by_byte() -> None:
    assert pieces("😀 x") == [r"\xf0\x9f\x98", r"\x80", "·x"]


def test_messages_are_one_safe_line() -> None:
    assert text.visible("a b\n\x1b[0m\u202e") == r"a b\n\x1b[0m\u202e"
    error = text.unknown("layer", "\x1b" * 200, ["causal"])
    assert str(error).isprintable()
    assert len(str(error)) < 320


# --- reading


def test_reads_the_argument_or_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\xff \r\nstep\n\0")
    assert text.read_text(None, "a text") == "a text"
    assert text.read_text(None, "") == ""
    assert text.read_text(path, None) == "one\udcff \r\nstep\n\0"
    assert raw_of(text.encode(text.read_text(str(path), None))) == path.read_bytes()


@pytest.mark.parametrize(("file", "argument"), [("-", None), (None, "-")])
def test_a_dash_is_standard_input(
    monkeypatch: pytest.MonkeyPatch, file: str | None, argument: str | None
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped \xf0\n")))
    assert text.read_text(file, argument) == "piped \udcf0\n"


def test_inputs_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(text.MAX_TEXT_BYTES + 1)
    files_and_words = {
        str(tmp_path / "absent\x1b[1m"): "there is no file",
        str(tmp_path): "is a folder",
        str(large): "too large",
        "nul\0": "cannot be read",
    }
    for name, content, words in [
        ("empty", b"", "is empty"),
        ("x.npy", b"\x93NUMPY\x01\x00", "NumPy array"),
        ("x.pt", b"PK\x03\x04\x00\x00", "PyTorch file"),
        ("zeros", bytes(4096), "binary data"),
        ("wide", "\ufeffwide".encode("utf-16-le"), "UTF-16"),
    ]:
        (tmp_path / name).write_bytes(content)
        files_and_words[str(tmp_path / name)] = words
    for name, words in files_and_words.items():
        with pytest.raises(UsageError, match=words) as error:
            text.read_text(name, None)
        assert str(error.value).isprintable()
    monkeypatch.setattr(sys, "stdin", None)
    for pair, words in {("f", "a"): "both", (None, None): "no text", ("-", None): "closed"}.items():
        with pytest.raises(UsageError, match=words):
            text.read_text(*pair)


def test_text_masks_and_the_table_of_layers_do_not_import_torch() -> None:
    program = (
        "import sys, attnscope.text, attnscope.masks, attnscope.layers, attnscope.layers.options\n"
        "assert 'tiktoken' not in sys.modules and 'tiktoken_ext' not in sys.modules\n"
        "attnscope.text.encode('a b'); attnscope.masks.build('causal', 4)\n"
        "attnscope.layers.options.resolve('stacked', num_heads=4)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
