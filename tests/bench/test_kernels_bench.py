"""The table of compiled kernels: what is counted, and the command where there is a compiler."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from specrt.bench import kernels
from specrt.bench.__main__ import main
from specrt.bench.compilers import find_compiler
from specrt.bench.machine_code import disassembled, of_ptx
from specrt.bench.op_cases import OPS
from specrt.errors import UnsupportedError
from specrt.kernels.emulator.build import ENTRY

SASS = """\t.section\t.text.one,"ax",@progbits
.text.one:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0040*/             @UP0  LDGSTS.E.BYPASS.128 [R9], desc[UR4][R2.64] ;
        /*0050*/                   LDS.128 R4, [R2] ;
        /*0060*/                   IMMA.16832.S8.S8 R4, R4.ROW, R2.COL, R4 ;
.L_x_0:
        /*0070*/                   STG.E.128 desc[UR4][R2.64], R4 ;
\t.section\t.text.two,"ax",@progbits
.text.two:
        /*0000*/                   IDP.4A.S8.S8 R1, R2, R3, R1 ;
"""
PTX = """
.visible .entry one(
\t.param .u64 one_param_0
)
{
\tld.param.u64 %rd1, [one_param_0];
\tld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
\tld.global.v2.f32 {%f1, %f2}, [%rd1];
\tld.global.u8 %rs1, [%rd1];
\tld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r9];
\tcp.async.cg.shared.global [%r1], [%rd1], 16, %r2;
\tmma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};
\tdp4a.s32.s32 %r1, %r2, %r3, %r4;
\tst.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
}
"""


def test_what_is_counted_in_machine_code(tmp_path):
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{SASS}END\n")
    tool.chmod(0o755)
    one, two = disassembled(str(tool), b"code").values()
    assert one.loads == Counter({128: 2, 32: 1, 16: 1}) and (one.matrix_products, one.stores) == (
        1,
        1,
    )
    assert two.dot_products == 1 and not two.loads and not two.stores
    tool.write_text("#!/bin/sh\necho no such architecture >&2\nexit 1\n")
    with pytest.raises(UnsupportedError, match="no such architecture"):
        disassembled(str(tool), b"code")


def test_what_is_counted_in_ptx():
    one = of_ptx(PTX)["one"]
    assert one.loads == Counter({128: 2, 64: 1, 8: 1})
    assert (one.matrix_products, one.dot_products, one.stores) == (1, 1, 1)


LOOPS = """.text.one:
        /*0000*/                   MOV R1, R2 ;
.L_x_1:
        /*0010*/                   IADD3 R1, R2, RZ, RZ ;
.L_x_0:
        /*0020*/                   IDP.4A.S8.S8 R1, R2, R3, R1 ;
        /*0030*/              @!P0 BRA `(.L_x_0) ;
        /*0040*/               @P1 BRA `(.L_x_2) ;
        /*0050*/                   BRA `(.L_x_1) ;
.L_x_2:
        /*0060*/                   STG.E [R2.64], R4 ;
        /*0070*/                   EXIT ;
        /*0080*/                   BRA `(.L_x_1) ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
        /*00a0*/                   NOP;
"""


def test_loops_are_those_before_the_end(tmp_path):
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{LOOPS}END\n")
    tool.chmod(0o755)
    (one,) = disassembled(str(tool), b"code").values()
    inner, outer, trap = one.loops
    assert (inner.first, inner.last, inner.products) == (2, 3, 1)
    assert (outer.first, outer.last, outer.products) == (1, 5, 1)
    assert inner.within(outer) and not outer.within(inner) and inner.count == 2
    assert trap.count == 1 and one.count == 10


def test_the_modules_and_their_shared_memory():
    modules = kernels.all_modules()
    assert len({module.name for module in modules}) == len(modules)
    entries = {(module, name) for module in modules for _, name in ENTRY.findall(module.text)}
    shared = kernels.shared_memory()
    assert set(shared) <= entries
    assert {module for module, _ in shared} == {one for one in modules if one.file in OPS}
    assert max(shared.values()) <= 48 << 10 and any(shared.values())


@pytest.mark.skipif(find_compiler() is None, reason="neither NVRTC's wheel nor nvcc")
def test_the_command(tmp_path, capsys):
    file = tmp_path / "kernels.json"
    flags = ["--arch", "80,90", "--file", "glu,linear", "--type", "Q4_K"]
    assert main(["kernels", *flags, "--json", str(file)]) == 0
    told = capsys.readouterr().out
    assert "sm_80" in told and "sm_90" in told
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["settings"]["compiler"]
    one = {(one["architecture"], one["entry"]): one for one in saved["results"]}
    assert one[90, "linear_mma_8"]["matrix_products"] and one[80, "linear_dot"]["dot_products"]
    assert "128" in one[80, "glu_silu_x4"]["loads"] and "32" in one[80, "glu_silu_x1"]["loads"]
    assert all(one["registers"] > 0 for one in saved["results"])


def test_as_many_compile_at_once_as_the_process_has_processors(monkeypatch):
    numbers = []

    def pool(number):
        numbers.append(number)
        return ThreadPoolExecutor(number)

    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr(kernels, "shared_memory", dict)
    monkeypatch.setattr(kernels, "ThreadPoolExecutor", pool)
    assert not list(kernels.compiled(SimpleNamespace(architectures=list), [], []))
    assert numbers == [1]


def test_wrong_arguments():
    for flags in (["--arch", "70"], ["--file", "glue"], ["--type", "Q4"]):
        assert main(["kernels", *flags]) == 2
