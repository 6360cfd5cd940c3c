from __future__ import annotations

import os
import struct
from pathlib import Path

import gguf
import pytest

from mtpd.engine.gguf import GgufError, read_header
from mtpd.engine.gguf_types import BLOCKS

MODELS = Path(__file__).parents[3] / "mtpd" / "_data" / "models"
BUNDLED = sorted(MODELS.glob("*.gguf"))


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


ARCH = entry("general.architecture", 8, text("toy"))


def file(entries: list[bytes], tensors: list[bytes], data: int = 0, *, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def refused(folder: Path, content: bytes) -> GgufError:
    path = written(folder, content)
    with pytest.raises(GgufError) as caught:
        read_header(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("path", BUNDLED, ids=[path.stem for path in BUNDLED])
def test_a_bundled_model_reads_as_the_reference_reader_reads_it(path: Path) -> None:
    ours, oracle = read_header(path), gguf.GGUFReader(path)
    assert [(t.name, t.n_bytes, t.type_name, t.shape) for t in ours.tensors] == [
        (t.name, int(t.n_bytes), t.tensor_type.name, tuple(int(n) for n in t.shape))
        for t in oracle.tensors
    ]
    assert ours.data_offset == oracle.data_offset
    assert ours.alignment == oracle.alignment
    for key, value in ours.metadata.items():
        known = oracle.fields[key].contents()
        assert (list(value) if isinstance(value, tuple) else value) == known, key
    numbers = {key for key in oracle.fields if key.startswith("qwen35.")}
    assert numbers <= set(ours.metadata)
    assert ours.vocab_size == len(oracle.fields["tokenizer.ggml.tokens"].contents())


def test_the_bundled_models_are_there_and_say_what_the_memory_formula_needs() -> None:
    assert len(BUNDLED) == 2
    header = read_header(BUNDLED[0])
    assert header.architecture == "qwen35"
    assert (header.block_count, header.nextn_layers) == (17, 1)
    assert (header.context_length, header.embedding_length) == (32768, 128)
    assert header.vocab_size == 1024
    assert header.number("ssm.inner_size") == 128
    assert header.number("attention.key_length") == 64
    assert header.number("full_attention_interval") == 4
    assert header.number("no.such_key") is None
    assert header.data_complete
    header.require_complete()


def test_every_type_of_the_reference_is_known_with_its_size() -> None:
    reference = {
        int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType
    }
    assert reference.items() <= dict(BLOCKS).items()


def test_a_file_that_lacks_data_says_how_much(tmp_path: Path) -> None:
    whole = BUNDLED[0].read_bytes()
    last = max(read_header(BUNDLED[0]).tensors, key=lambda t: t.offset)
    end = read_header(BUNDLED[0]).data_offset + last.offset + last.n_bytes
    header = read_header(written(tmp_path, whole[: end - 100]))
    assert not header.data_complete
    assert header.missing_bytes == 100
    with pytest.raises(GgufError, match="100 bytes are missing at its end") as caught:
        header.require_complete()
    assert str(tmp_path) in str(caught.value)


def test_padding_after_the_last_tensor_is_not_missed(tmp_path: Path) -> None:
    content = file([ARCH], [tensor("a", (3,), 0, 0)], data=12)
    assert read_header(written(tmp_path, content)).data_complete
    assert not read_header(written(tmp_path, content[:-1])).data_complete


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 23, 24, 40, 300, 5000, 20000])
def test_a_header_that_was_cut_names_the_missing_bytes(tmp_path: Path, kept: int) -> None:
    error = refused(tmp_path, BUNDLED[0].read_bytes()[:kept])
    assert "ends inside its header" in str(error)
    assert "bytes are missing" in str(error)


def test_garbage_is_not_a_gguf_file(tmp_path: Path) -> None:
    assert "not a GGUF file" in str(refused(tmp_path, b"GARBage" * 100))


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"gone\.gguf was not found"):
        read_header(tmp_path / "gone.gguf")
    with pytest.raises(GgufError, match="cannot be read"):
        read_header(tmp_path)


WRONG: list[tuple[str, bytes]] = [
    ("version 9", file([ARCH], [], version=9)),
    ("names no architecture", file([], [])),
    ("unknown type 77", file([entry("k", 77, b"")], [])),
    ("array of the unknown type 9", file([entry("k", 9, struct.pack("<IQ", 9, 1))], [])),
    ("no power of two", file([ARCH, entry("general.alignment", 4, struct.pack("<I", 48))], [])),
    ("99 dimensions", file([ARCH], [text("a") + struct.pack("<I", 99)])),
    ("too many", b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0)),
    ("bytes are missing", file([entry("k", 8, struct.pack("<Q", 1 << 60))], [])),
    ("bytes are missing", file([entry("k", 9, struct.pack("<IQ", 8, 1 << 60))], [])),
    ("bytes are missing", file([entry("k", 9, struct.pack("<IQ", 4, 1 << 60))], [])),
]


@pytest.mark.parametrize(
    ("says", "content"), WRONG, ids=[f"{i}-{x[0]}" for i, x in enumerate(WRONG)]
)
def test_a_header_that_lies_ends_in_one_sentence(tmp_path: Path, says: str, content: bytes) -> None:
    assert says in str(refused(tmp_path, content))


def test_a_tensor_of_an_unknown_type_reaches_to_the_next_one(tmp_path: Path) -> None:
    tensors = [tensor("b", (4,), 99, 64), tensor("a", (4,), 99, 0)]
    header = read_header(written(tmp_path, file([ARCH], tensors, data=96)))
    assert [(t.name, t.type_name, t.n_bytes) for t in header.tensors] == [
        ("b", "type 99", 32),
        ("a", "type 99", 64),
    ]
    assert header.data_complete


def test_long_arrays_are_counted_and_not_kept(tmp_path: Path) -> None:
    many = struct.pack("<IQ", 4, 5000) + bytes(4 * 5000)
    few = struct.pack("<IQ5i", 5, 5, 1, -2, 3, 4, 5)
    words = struct.pack("<IQ", 8, 2) + text("a") + text("bc")
    entries = [
        ARCH,
        entry("many", 9, many),
        entry("few", 9, few),
        entry("tokenizer.ggml.tokens", 9, words),
        entry("yes", 7, b"\x01"),
        entry("long", 8, text("x" * 9000)),
    ]
    header = read_header(written(tmp_path, file(entries, [])))
    assert header.metadata["few"] == (1, -2, 3, 4, 5)
    assert header.metadata["yes"] is True
    assert header.metadata["long"] == "x" * 4096
    assert "many" not in header.metadata
    assert header.vocab_size == 2
    assert header.tensors == ()
    assert header.data_complete


def test_the_digest_tells_models_apart_and_ignores_the_weights(tmp_path: Path) -> None:
    first, second = BUNDLED
    assert read_header(first).digest != read_header(second).digest
    content = bytearray(first.read_bytes())
    content[-100] ^= 0xFF
    again = read_header(written(tmp_path, bytes(content)))
    assert again.digest == read_header(first).digest


def test_a_header_that_never_ends_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 150 << 20))
    with path.open("r+b") as sparse:
        sparse.truncate(200 << 20)
    with pytest.raises(GgufError, match="its header is longer than"):
        read_header(path)


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(
            GgufError, match=rf"^{path} cannot be read: it is not a regular"
        ) as caught:
            read_header(path)
        assert caught.value.hint == "Name the model file itself."
