"""The fleets file: read strictly, every problem in one run, and in agreement with the rules of layouts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_configs import GEMMA4_31B, TINY, changed, written

from patchline.errors import UsageError
from patchline.gates.fleet import HYBRID_OFF, Expected, Fleet, Refuses, engine_flags, is_gpu
from patchline.gates.fleets import load, path_of, select
from patchline.gates.model_config import read
from patchline.gates.stacks import OVERLAY, STOCK_31, Outcome, Pair, judge
from patchline.project import Project

ROOT = Path(__file__).parents[2]
GOOD = """\
[fleet.cpu]
gpu = ""
nodes = 1
gpus_per_node = 0
runner = "local"
after = ""
ready_seconds = 300
parity_bound = 1e-4
kv_buffer_device = "cpu"
debian = ["etcd-server"]
flags = ["--enforce-eager"]
env = { OMP_NUM_THREADS = "1" }

[[fleet.cpu.models]]
name = "tiny"
tokens = 260
words = 128

[[fleet.cpu.layouts]]
model = "tiny"
prefill = 2
decode = 4
stock = { refuses = 'SPLIT region' }
overlay = "serves"

[fleet.h20]
gpu = "NVIDIA H20"
nodes = 2
gpus_per_node = 8
runner = "slurm"
after = "cpu"
ready_seconds = 1800.0
parity_bound = 0.25
kv_buffer_device = "cuda"
flags = []

[[fleet.h20.models]]
name = "gemma-4-31B"
setting = "PATCHLINE_GEMMA"
tokens = 12500
alone = 4
gemma4 = true

[[fleet.h20.layouts]]
model = "gemma-4-31B"
prefill = 4
decode = 8
stock = "serves"
overlay = "serves"
hybrid_manager = true
through = ["dynamo"]

[[fleet.h20.layouts]]
model = "gemma-4-31B"
prefill = 4
decode = 8
stock = "unsafe"
overlay = { refuses = 'cannot' }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleets.toml"
    path.write_text(GOOD)
    return path


def wrong(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load(path)
    assert int(caught.value.exit) == 2
    assert f"where: {path}" in str(caught.value)
    return caught.value.what


def test_read(file: Path) -> None:
    fleets = load(file)
    assert list(fleets) == ["cpu", "h20"]
    cpu, h20 = fleets.values()
    assert (cpu.embedded, h20.embedded) == (True, False)
    assert cpu.layouts[0].stock == Refuses(refuses="SPLIT region")
    assert [layout.name for layout in (*cpu.layouts, *h20.layouts)] == [
        "tiny-tp2-tp4",
        "gemma-4-31B-tp4-tp8-hybrid",
        "gemma-4-31B-tp4-tp8",
    ]
    assert (cpu.layouts[0].through, h20.layouts[0].through) == (("engines",), ("dynamo",))
    assert engine_flags(cpu, cpu.layouts[0]) == ["--enforce-eager", HYBRID_OFF]
    assert engine_flags(h20, h20.layouts[0]) == []
    assert select(fleets, "h20") is h20


def test_a_fleet_that_is_not_there(file: Path) -> None:
    with pytest.raises(UsageError, match="there is no fleet 'h2O': did you mean 'h20'"):
        select(load(file), "h2O")


@pytest.mark.parametrize(
    ("seen", "wanted", "same"),
    [
        ("NVIDIA H20", "NVIDIA H20", True),
        ("NVIDIA H20-3e", "NVIDIA H20", True),
        ("nvidia  h20", "NVIDIA H20", True),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300", True),
        ("NVIDIA H200", "NVIDIA H20", False),
        ("NVIDIA H20Z", "NVIDIA H20", False),
        ("H20", "NVIDIA H20", False),
        ("NVIDIA", "NVIDIA H20", False),
        ("", "NVIDIA H20", False),
        ("NVIDIA H20", "", False),
        ("", "", False),
    ],
)
def test_which_gpu_is_which(seen: str, wanted: str, same: bool) -> None:
    assert is_gpu(seen, wanted) is same


CASES = {
    "[fleet.cpu]|[fleets.cpu]": "the file: unknown key 'fleets': did you mean 'fleet'?",
    "gpu = \"\"|gpus = \"\"\ngpu = \"\"": "fleet cpu: unknown key 'gpus': did you mean 'gpu'?",
    "nodes = 1|name = 'x'\nnodes = 1": "fleet cpu: unknown key 'name'",
    "nodes = 1|nodes = 0": "fleet cpu: nodes is 0: must be at least 1",
    "nodes = 1|nodes = '1'": "fleet cpu: Expected `int`, got `str` - at `$.nodes`",
    'runner = "local"|runner = "locale"': "fleet cpu: Invalid enum value 'locale' - at `$.runner`",
    'runner = "local"|runner = "slurm"': "fleet cpu: runner is 'slurm': without a gpu it must be 'local'",
    'runner = "local"\nafter = ""\n|': "fleet cpu: Object missing required field `runner`",
    "gpus_per_node = 0|gpus_per_node = 8": "fleet cpu: gpus_per_node is 8: without a gpu it must be 0",
    'kv_buffer_device = "cpu"|kv_buffer_device = "cuda"': "kv_buffer_device is 'cuda': without a gpu it must be 'cpu'",
    'name = "tiny"|name = "tiny"\nsetting = "X"': "model tiny is given by X: without a gpu the project's own models",
    'name = "tiny"|name = "tiny"\nsettings = "X"': "fleet cpu, models 1: unknown key 'settings': did you mean 'setting'?",
    "ready_seconds = 300|ready_seconds = 0": "fleet cpu: ready_seconds is 0.0: must be above 0",
    "ready_seconds = 300|ready_seconds = inf": "fleet cpu: ready_seconds is inf: must be above 0",
    "ready_seconds = 300|ready_seconds = nan": "fleet cpu: ready_seconds is nan: must be above 0",
    "parity_bound = 1e-4|parity_bound = 0": "fleet cpu: parity_bound is 0.0: must be above 0",
    "tokens = 260|tokens = 0": "fleet cpu: model tiny: tokens is 0: must be at least 1",
    "words = 128|words = -1": "fleet cpu: model tiny: words is -1: must be 0 or more",
    "words = 128|alone = 0": "fleet cpu: model tiny: alone is TP0: must be at least 1",
    "alone = 4|alone = 16": "alone is TP16: that does not fit on a node of 8 GPUs",
    "words = 128|gemma4 = true": "model tiny: gemma4 needs a layout through dynamo",
    '"--enforce-eager"|"--tensor_parallel_size=2"': "flag --tensor_parallel_size=2 does not belong here: layouts say it",
    '"--enforce-eager"|"--disable-hybrid-kv-cache-manager"': "a layout's hybrid_manager says it",
    '"--enforce-eager"|""': "flag '' is no argument of a command",
    'OMP_NUM_THREADS = "1"|OMP_NUM_THREADS = 1': "fleet cpu: Expected `str`, got `int` - at `$.env[...]`",
    "OMP_NUM_THREADS|VLLM_NIXL_SIDE_CHANNEL_PORT": "env: VLLM_NIXL_SIDE_CHANNEL_PORT does not belong here",
    "OMP_NUM_THREADS|'OMP NUM'": "env: 'OMP NUM' is not the name of an environment variable",
    'after = "cpu"|after = "cpus"': "fleet h20: after 'cpus': there is no such fleet: did you mean 'cpu'?",
    'after = "cpu"|after = "h20"': "fleet h20: its gate waits for itself: h20 after h20",
    'after = ""|after = "h20"': "fleet cpu: its gate waits for itself: cpu after h20 after cpu",
    "nodes = 2|nodes = 1": "layout gemma-4-31B-tp4-tp8: prefill and decode want 12 GPUs, the fleet has 8",
    "gpus_per_node = 8|gpus_per_node = 6": "layout gemma-4-31B-tp4-tp8: decode TP8 does not fit on a node of 6 GPUs",
    "gpus_per_node = 8|gpus_per_node = 0": "fleet h20: gpus_per_node is 0: must be at least 1 of NVIDIA H20",
    'gpu = "NVIDIA H20"|gpu = " NVIDIA H20"': "gpu ' NVIDIA H20' has blanks that no name has",
    "prefill = 2|prefill = 0": "layout tiny-tp0-tp4: prefill TP is 0: must be at least 1",
    "hybrid_manager = true|hybrid_manager = false": "fleet h20: layout gemma-4-31B-tp4-tp8 is there twice",
    "hybrid_manager = true|hybird_manager = true": "fleet h20, layouts 1: unknown key 'hybird_manager': did you mean",
    'model = "tiny"|model = "tinny"': "layout tinny-tp2-tp4: there is no model 'tinny': did you mean 'tiny'?",
    'name = "tiny"|name = "../tiny"': "'../tiny' is not the name of a model",
    'setting = "PATCHLINE_GEMMA"|setting = "a b"': "model gemma-4-31B: setting 'a b' is not the name of an environment",
    'through = ["dynamo"]|through = []': "through must name engines, dynamo or both, each once",
    'through = ["dynamo"]|through = ["dynamo", "dynamo"]': "through must name engines, dynamo or both, each once",
    'through = ["dynamo"]|through = ["dynamos"]': "fleet h20, layouts 1: Invalid enum value 'dynamos' - at `$.through[0]`",
    "'SPLIT region'|'SPLIT (region'": "stock: refuses 'SPLIT (region' is not a regular expression",
    "'SPLIT region'|'.*'": "layout tiny-tp2-tp4: stock: refuses '.*' matches any line",
    "{ refuses = 'cannot' }|'unsafe'": "overlay: unsafe: the overlay serves a layout or refuses it",
    "overlay = \"serves\"\n\n|overlay = { refuses = 'x' }\n\n": "fleet cpu: it has no layout that the overlay serves",
    "[[fleet.cpu.layouts]]|[[fleet.cpu.layout]]": "fleet cpu: it has no layouts: tables [[fleet.NAME.layouts]]",
    "[[fleet.h20.layouts]]|[[fleet.h20.models]]\nname = 'x'\ntokens = 9\n[[fleet.h20.layouts]]": "fleet h20: model x has no layout",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_wrong_thing_is_named(file: Path, case: str) -> None:
    old, _, new = case.partition("|")
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    assert CASES[case] in wrong(file)


def test_everything_is_named_in_one_run(file: Path) -> None:
    text = (
        GOOD.replace("nodes = 1", "nodes = 0").replace("prefill = 2", "prefill = 0").replace("8\nrunner", "4\nrunner")
    )
    file.write_text(text.replace('"cpu"\nready', '"cqu"\nready'))
    text = wrong(file)
    assert text.startswith("the fleets file is wrong:\n  - fleet cpu: nodes is 0")
    assert len(text.splitlines()) == 1 + 8
    for part in ("prefill TP is 0", "decode TP8 does not fit", "after 'cqu'", "want 12 GPUs, the fleet has 8"):
        assert part in text


def test_a_shape_that_is_wrong_hides_no_other(file: Path) -> None:
    file.write_text(
        GOOD.replace("nodes = 1", "nodes = '1'").replace("nodes = 2", "nodes = '2'").replace("debian", "deb")
    )
    text = wrong(file)
    assert "fleet cpu: Expected `int`" in text
    assert "fleet h20: Expected `int`" in text
    assert "fleet cpu: unknown key 'deb'" in text


def test_no_file_no_toml_no_fleet(tmp_path: Path) -> None:
    path = tmp_path / "fleets.toml"
    assert "the fleets file cannot be read: No such file or directory" in wrong(path)
    path.write_bytes(b"")
    assert "it names no fleet: a table [fleet.NAME] is wanted" in wrong(path)
    path.write_bytes(b"x")
    assert "the fleets file is not TOML" in wrong(path)
    path.write_bytes(b"\xff")
    assert "the fleets file is not TOML" in wrong(path)
    path.write_text("fleet = 3\n")
    assert "it names no fleet" in wrong(path)
    path.write_text("[fleet]\ncpu = 3\n")
    assert "fleet cpu: a table is wanted" in wrong(path)
    path.write_text("[fleet.cpu]\nmodels = [3]\nlayouts = []\n")
    text = wrong(path)
    assert "fleet cpu, models 1: Expected `object`, got `int`" in text
    assert "fleet cpu: it has no layouts" in text


# --- the project's own fleets


@pytest.fixture(scope="module")
def ours() -> dict[str, Fleet]:
    return load(path_of(Project(ROOT)))


def test_the_projects_fleets_and_their_order(ours: dict[str, Fleet]) -> None:
    assert {name: (fleet.gpu, fleet.after) for name, fleet in ours.items()} == {
        "cpu": ("", ""),
        "h20": ("NVIDIA H20", "cpu"),
        "b300": ("NVIDIA B300", "h20"),
    }
    assert [fleet.embedded for fleet in ours.values()] == [True, False, False]


def test_what_must_be_shown_is_there(ours: dict[str, Fleet]) -> None:
    cpu = {layout.name: layout for layout in ours["cpu"].layouts}
    assert cpu["tiny-8-2-tp2-tp4"].through == ("engines", "dynamo")
    assert {"tiny-8-2-tp1-tp2", "tiny-8-2-tp4-tp2", "tiny-8-2-tp2-tp4-hybrid", "tiny-16-4-tp4-tp8"} <= set(cpu)
    assert "gemma-4-31B-tp4-tp8" in {layout.name for layout in ours["b300"].layouts}


def agrees(expected: Expected, outcome: Outcome, why: str) -> bool:
    """Whether a fleet expects what the rules say; the overlay's own words are held by the patches' tests."""
    if not isinstance(expected, Refuses):
        return outcome == expected
    own = "NIXL cannot" in expected.refuses
    return outcome is Outcome.REFUSES and (own or re.search(expected.refuses, why) is not None)


def test_the_rules_foretell_what_the_fleets_expect(ours: dict[str, Fleet], tmp_path: Path) -> None:
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16}
    configs = {
        "tiny-8-2": TINY,
        "tiny-16-4": changed(TINY, **heads, per_layer_config={"5": {"head_dim": 64, "num_key_value_heads": 4}}),
        "gemma-4-31B": GEMMA4_31B,
    }
    models = {name: read(written(tmp_path, config)) for name, config in configs.items()}
    checked = 0
    for fleet in ours.values():
        size = int(fleet.flags[fleet.flags.index("--block-size") + 1])
        for layout in fleet.layouts:
            pair = Pair(layout.prefill, layout.decode, size)
            for stack, expected in ((STOCK_31, layout.stock), (OVERLAY, layout.overlay)):
                done = judge(stack, models[layout.model], pair, hybrid=layout.hybrid_manager)
                assert agrees(expected, done.outcome, done.why), (fleet.name, layout.name, stack, done)
                checked += 1
    assert checked == 24


def test_the_overlays_words_are_those_of_the_patches(ours: dict[str, Fleet]) -> None:
    """What a gate looks for in a log is what the patched source says, as far as it is constant there."""
    patches = "".join(path.read_text() for path in sorted((ROOT / "patches" / "vllm").glob("*/*.patch")))
    said = re.sub(r'"\s*\n\+\s*f?"', "", patches)
    wanted = {
        layout.overlay.refuses
        for fleet in ours.values()
        for layout in fleet.layouts
        if isinstance(layout.overlay, Refuses)
    }
    assert wanted
    for words in wanted:
        pattern = re.sub(r"TP \d+", r"TP {[a-z_]+}", words.replace("{", r"\{"))
        assert re.search(pattern, said), words
