"""Proves that names become short, take two lines, and remain apart."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from timeline.reports.terminal import Display, named_grid
from timeline.tables.short_names import operator_label, shortened, two_lines

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::{}Functor<float> >, at::detail::Array<char*, 3> >(int, "
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::{}Functor<float> "
    ">, at::detail::Array<char*, 3>)"
)
KERNELS = [ADD.format(one, one) for one in ("Add", "Mul", "Div", "Sub")]


@pytest.mark.parametrize("most", [20, 40, 120])
def test_kernels_that_begin_and_end_alike_remain_apart(most: int) -> None:
    """Functors of one kernel stand in the middle of its name."""
    found = shortened(KERNELS, most)
    assert len(set(found)) == len(KERNELS)
    assert all(len(name) <= most for name in found)
    if most > 100:
        for name, one in zip(found, ("Add", "Mul", "Div", "Sub"), strict=True):
            assert one in name


def test_what_a_kernel_returns_and_takes_is_left_out_first() -> None:
    kernel = "void own::reduce_kernel<512, 1>(own::ReduceOp<float>, own::ReduceOp<float>)"
    assert shortened([kernel], 40) == ["own::reduce_kernel<512, 1>"]
    assert shortened([kernel], 90) == [kernel]


def test_scopes_keep_what_ends_them() -> None:
    name = "Default/network-TrainOneStep/" + "layers-SequentialCell/" * 8 + "MatMul-op239"
    (found,) = shortened([name], 60)
    assert found.startswith("Default/network")
    assert found.endswith("MatMul-op239")


_words = st.text(alphabet="ab<>(), :/_", max_size=70)


@given(
    st.lists(_words | st.builds(lambda word: word * 3, _words), max_size=12), st.integers(20, 50)
)
@example(["a" * 40, "a" * 41, "a" * 42 + "b", "a" * 19 + "…"], 20)
def test_different_names_remain_different(names: list[str], most: int) -> None:
    """Whatever they are; names that are short enough stay what they are."""
    found = shortened(names, most)
    for name, short in zip(names, found, strict=True):
        assert len(short) <= most
        assert short == name or len(name) > most
    assert len(set(zip(names, found, strict=True))) == len(set(names)) == len(set(found))


@given(st.text(max_size=80), st.integers(10, 40))
def test_names_are_two_lines_at_most(name: str, width: int) -> None:
    """Of the width, and without loss of anything but spaces."""
    name = name[: 2 * width].replace("\n", " ")
    lines = two_lines(name, width).split("\n")
    assert len(lines) <= 2
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(name.split())


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_table_of_kernels_has_rows_of_two_lines(width: int, encoding: str) -> None:
    """In whatever width and encoding; no two read the same, and none is wider than the page."""
    page = Display(width, encoding, terminal=False)
    cells = [("kernel", f"{at} ms") for at in range(len(KERNELS))]
    grid = named_grid(page, width, ["operator", "core"], ["time"], KERNELS, cells)
    console = Console(file=io.StringIO(), width=width)
    console.print(grid)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().rstrip("\n").split("\n")
    assert len(lines) <= 1 + 2 * len(KERNELS)
    assert max(map(len, lines)) <= width
    shown = [cell.plain for cell in grid.columns[0].cells if isinstance(cell, Text)]
    assert len(set(shown)) == len(KERNELS)


def test_labels_of_kernels_tell_the_operator() -> None:
    """Of a framework; types of NPUs and families of kernels are told by the name itself."""
    assert operator_label("aten::mm", "ampere_sgemm") == "aten::mm: ampere_sgemm"
    assert operator_label("cuBLAS GEMM", "ampere_sgemm") == "ampere_sgemm"
    assert operator_label("MatMulV2", "Default/MatMul-op1") == "Default/MatMul-op1"
    assert operator_label("MatMulV2", "") == "MatMulV2"
