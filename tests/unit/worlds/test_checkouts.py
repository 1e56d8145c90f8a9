"""An engine's modules are read out of a folder that the host's owner chose, changed in memory, and kept apart."""

import sys
import textwrap

import pytest

from worldline.errors import BadValue, MissingExtra
from worldline.worlds.checkouts import FOLDER, Checkout, Edits, find_checkout, has_checkout, load_engine
from worldline.worlds.options import read_options
from worldline.worlds.registry import build_world

HERE = "worldline.worlds.checkouts"


@pytest.fixture
def checkout(tmp_path):
    """Writes modules by their names, and gives the checkout."""

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return Checkout(tmp_path)

    return write


def test_two_engines_with_modules_of_one_name_never_meet(tmp_path):
    told = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "utils.py").write_text(f"who = {name!r}\n")
        (tmp_path / name / "model.py").write_text("from utils import who\n")
        told.append(load_engine(Checkout(tmp_path / name), ["model"], Edits())["model"].who)
    assert told == ["one", "two"]
    assert "utils" not in sys.modules
    assert "model" not in sys.modules


def test_a_module_that_was_there_before_is_there_afterwards(checkout):
    before = sys.modules["textwrap"]
    assert load_engine(checkout(textwrap="mine = True\n"), ["textwrap"], Edits())["textwrap"].mine
    assert sys.modules["textwrap"] is before


def test_nothing_is_written_into_the_checkout_and_no_byte_code_is_read(checkout, tmp_path):
    load_engine(checkout(model="size = 880\n"), ["model"], Edits())
    assert [path.name for path in tmp_path.rglob("*")] == ["model.py"]


def test_numbers_calls_imports_and_decorators_are_changed_in_memory(checkout):
    edits = Edits(
        modules={"flash_attn": f"{HERE}.attention", "hopper": None, "pack.tokens": f"{HERE}.unneeded"},
        values={880: 8, "cuda": "cpu"},
        constants={"gpu.current_device": "cpu"},
        plain=frozenset({"gpu.compile"}),
        bare=frozenset({"pack"}),
    )
    engine = load_engine(
        checkout(
            pack____init__="raise RuntimeError('not to be run')\n",
            pack__model="""
            from flash_attn import flash_attn_func
            from .tokens import Tokenizer
            from . import layers
            try:
                import hopper
                FAST = True
            except ModuleNotFoundError:
                FAST = False
            TOKENS, DEVICE, TRUE = 880, "cuda", True
            PLACE = gpu.current_device() if not FAST else None
            loop = gpu.compile(layers.double, mode="max")

            @gpu.compile(fullgraph=True)
            def run(x):
                return x + 880
            """,
            pack__layers="def double(x):\n    return 2 * x\n",
        ),
        ["pack.model"],
        edits,
    )
    model = engine["pack.model"]
    assert (model.TOKENS, model.DEVICE, model.TRUE, model.FAST, model.PLACE) == (8, "cpu", True, False, "cpu")
    assert (model.loop(3), model.run(1)) == (6, 9)
    assert model.flash_attn_func.__module__ == f"{HERE}.attention"
    with pytest.raises(NotImplementedError):
        model.Tokenizer("a name")


def test_the_digest_is_of_every_file_that_was_read(checkout):
    texts = {"model": "from parts import size\n", "parts": "size = 1\n", "other": "size = 2\n"}
    before = load_engine(checkout(**texts), ["model"], Edits()).digest
    assert load_engine(checkout(**texts | {"other": "size = 3\n"}), ["model"], Edits()).digest == before
    assert load_engine(checkout(**texts | {"parts": "size = 3\n"}), ["model"], Edits()).digest != before


def test_a_package_that_the_engine_lacks_is_named_with_what_to_install(checkout):
    with pytest.raises(MissingExtra, match=r"'no_such_package'.*worldline\[engines\]"):
        load_engine(checkout(model="import no_such_package\n"), ["model"], Edits())
    assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith(HERE)]


def test_a_world_without_its_checkout_says_what_to_clone(monkeypatch, tmp_path):
    monkeypatch.delenv(FOLDER, raising=False)
    assert not has_checkout("open-oasis")
    with pytest.raises(MissingExtra, match=r"clone github\.com/etched-ai/open-oasis as open-oasis into a folder"):
        build_world("open-oasis", {})
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(MissingExtra):
        find_checkout("open-oasis")
    (tmp_path / "open-oasis").mkdir()
    (tmp_path / "open-oasis" / "dit.py").write_text("")
    assert find_checkout("open-oasis").root == tmp_path / "open-oasis"


def test_no_option_names_code_that_is_run():
    from worldline.worlds.open_oasis import OpenOasisOptions

    with pytest.raises(BadValue, match="no option 'checkout'"):
        read_options("open-oasis", OpenOasisOptions, {"checkout": "/tmp"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def forward(:", "can't be run: SyntaxError"),
        ("from utils import gone", "can't be run: ImportError"),
        ("import sys; sys.exit('needs a GPU')", "can't be run: SystemExit: needs a GPU"),
        ("open('config.json')", "can't be run: FileNotFoundError"),
    ],
)
def test_a_checkout_that_is_broken_half_way_is_told_in_one_sentence_and_leaves_no_module(checkout, text, said):
    with pytest.raises(BadValue, match=said):
        load_engine(checkout(model=text, utils="here = 1"), ["model"], Edits())
    assert not {"model", "utils"} & sys.modules.keys()


def test_a_module_that_the_checkout_should_have_is_no_package_to_install(checkout):
    with pytest.raises(MissingExtra, match=r"is not whole: it has no module 'wan\.modules\.vae'"):
        load_engine(checkout(model="import wan.modules.vae", wan__modules__attention=""), ["model"], Edits())
