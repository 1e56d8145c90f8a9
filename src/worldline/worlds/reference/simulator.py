"""Ground truth of the reference world: a fixed tile map on a torus, seen from above around one walker.

The map has 16 x 16 tiles of 12 px. A block is three frames; an action moves the walker one tile in a block, 4 px a
frame, unless the tile ahead blocks: then he only turns. Between blocks the world is (column, row, facing) and nothing
else, so what a model must know is where it is and what the map looks like there. Pictures are palette indices; numpy
only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

TILE_PX = 12
MAP_TILES = 16
MAP_PX = TILE_PX * MAP_TILES
VIEW_PX = 64
STEP_PX = 4
BLOCK_FRAMES = 3
WALKER_PX = (VIEW_PX - TILE_PX) // 2  # where the walker's tile begins in the view, both axes

ACTIONS = ("stay", "forward", "back", "left", "right")
STAY, FORWARD, BACK, LEFT, RIGHT = range(5)
HEADING = {FORWARD: (0, -1), BACK: (0, 1), LEFT: (-1, 0), RIGHT: (1, 0)}  # action -> (columns, rows)
RIPPLES = (0, 1, 0)  # phase of the water in a block's three frames

# fmt: off
INK, GRASS, LEAF, PINE, WATER, FOAM, SAND, BROWN, PLANK, RED, YELLOW, WHITE, VIOLET, GREY, ORANGE, SKIN = range(16)
PALETTE = np.array([
    (34, 32, 52), (112, 176, 76), (58, 126, 60), (30, 78, 56), (64, 128, 214), (136, 196, 244), (224, 196, 140),
    (118, 76, 48), (180, 126, 78), (208, 60, 60), (246, 212, 72), (246, 246, 246), (150, 88, 192), (138, 146, 158),
    (228, 132, 48), (246, 184, 152),
], dtype=np.uint8)  # [colours=16, rgb=3]
# fmt: on

GROUND = (
    "TT~~..rr.pPPPP.T",
    "T.~~.,r..p.PoP..",
    "..~~.y...p.PP..,",
    ",.~~.....p.....y",
    "y.~~cc...p....y.",
    "yy~~cc...pS.w...",
    "pp==pppppppppppp",
    ",.~~.f..Wp.,.AA.",
    "o.~~.....p.rAAoA",
    "v.~~.....p...A..",
    "vv~~~~~..p.ww..,",
    ".v~~~~~s.pffff..",
    "m.s~~~ss.pcccc..",
    "P.ss~ss..pcccc..",
    "PP.s~~.s.p.....m",
    "TP.~~..rrp.yy..T",
)  # rows from the top; see TILES for the letters
HOUSES = ((6, 4, RED), (12, 3, FOAM), (5, 8, VIOLET), (14, 11, ORANGE), (7, 0, WHITE), (7, 13, YELLOW))
"""Column, row and roof of each; 2 x 2 tiles."""
BLOCKING = frozenset("~TPAWSof#")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the walker stands between two blocks; `facing` is the action (1..4) that last turned him."""

    column: int
    row: int
    facing: int = BACK


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture's cause: the walker's top-left corner, his facing and stride (0: at rest), the water's phase."""

    x_px: int
    y_px: int
    facing: int
    stride: int
    ripple: int


def walk(place: Place, action: int) -> tuple[Place, tuple[Shot, ...]]:
    """One block: the place after it and its three shots."""
    if action == STAY:
        return place, _shots(place, place, 0)
    columns, rows = HEADING[action]
    turned = Place(place.column, place.row, action)
    ahead = Place((place.column + columns) % MAP_TILES, (place.row + rows) % MAP_TILES, action)
    if tile_letters()[ahead.row][ahead.column] in BLOCKING:
        return turned, _shots(turned, turned, 0)
    return ahead, _shots(turned, ahead, 1 + (place.column + place.row) % 2)


def render(shot: Shot) -> np.ndarray:
    """uint8 [64, 64] palette indices."""
    rows = (shot.y_px - WALKER_PX + np.arange(VIEW_PX)) % MAP_PX
    columns = (shot.x_px - WALKER_PX + np.arange(VIEW_PX)) % MAP_PX
    view = map_picture(shot.ripple)[np.ix_(rows, columns)]
    sprite = walker_sprite(shot.facing, shot.stride)
    top = WALKER_PX + TILE_PX - sprite.shape[0]  # feet on the tile's lower edge
    window = view[top : top + sprite.shape[0], WALKER_PX : WALKER_PX + TILE_PX]
    window[sprite >= 0] = sprite[sprite >= 0].astype(np.uint8)
    return view


def roll_out(place: Place, actions: Iterable[int]) -> tuple[Place, np.ndarray]:
    """The place after the actions and uint8 [3 * actions, 64, 64] palette indices."""
    views = []
    for action in actions:
        place, shots = walk(place, action)
        views += [render(shot) for shot in shots]
    return place, np.stack(views)


def colours(views: np.ndarray) -> np.ndarray:
    """uint8 [..., 64, 64, 3] RGB of palette indices [..., 64, 64]."""
    rgb: np.ndarray = PALETTE[views]
    return rgb


@cache
def walkable_places() -> tuple[tuple[int, int], ...]:
    """(column, row) of every tile the walker can stand on, in reading order."""
    letters = tile_letters()
    return tuple((c, r) for r in range(MAP_TILES) for c in range(MAP_TILES) if letters[r][c] not in BLOCKING)


@cache
def tile_letters() -> tuple[str, ...]:
    """The ground with the houses' tiles marked '#'."""
    rows = [list(row) for row in GROUND]
    for column, row, _ in HOUSES:
        for r in (row, row + 1):
            for c in (column, column + 1):
                rows[r][c] = "#"
    return tuple("".join(row) for row in rows)


@cache
def map_picture(ripple: int) -> np.ndarray:
    """uint8 [192, 192] palette indices of the whole torus, read-only; `ripple` is the water's phase, 0 or 1."""
    picture = np.empty((MAP_PX, MAP_PX), np.uint8)
    for row, letters in enumerate(GROUND):
        for column, letter in enumerate(letters):
            picture[_tile(row), _tile(column)] = _tile_art(letter, column, row, ripple)
    for column, row, roof in HOUSES:
        top, left = row * TILE_PX, column * TILE_PX
        picture[top : top + 24, left : left + 24] = _house_art(roof)
    picture.setflags(write=False)
    return picture


@cache
def walker_sprite(facing: int, stride: int) -> np.ndarray:
    """int16 [16, 12] palette indices, -1 where the ground shows through."""
    if facing == RIGHT:
        return walker_sprite(LEFT, stride)[:, ::-1]
    rows = _HEADS[facing] + _LEGS[facing == LEFT, stride]
    return np.array([[_INKS[letter] for letter in row.ljust(TILE_PX)] for row in rows], np.int16)


def _shots(start: Place, end: Place, stride: int) -> tuple[Shot, ...]:
    columns, rows = HEADING[start.facing] if stride else (0, 0)
    shots = []
    for frame, ripple in enumerate(RIPPLES, start=1):
        x_px = (start.column * TILE_PX + columns * STEP_PX * frame) % MAP_PX
        y_px = (start.row * TILE_PX + rows * STEP_PX * frame) % MAP_PX
        shots.append(Shot(x_px, y_px, start.facing, stride if frame < BLOCK_FRAMES else 0, ripple))
    assert (shots[-1].x_px, shots[-1].y_px) == (end.column * TILE_PX, end.row * TILE_PX)
    return tuple(shots)


def _tile(index: int) -> slice:
    return slice(index * TILE_PX, (index + 1) * TILE_PX)


def _tile_art(letter: str, column: int, row: int, ripple: int) -> np.ndarray:
    """uint8 [12, 12]; a generator seeded with the tile places blades of grass, so no two meadows are alike."""
    if letter == "~":
        return _water_art(column, row, ripple)
    ground, shape = TILES[letter]
    art = np.full((TILE_PX, TILE_PX), ground, np.uint8)
    if ground == GRASS:
        scatter = np.random.default_rng(1000 * row + column)
        for _ in range(2 if letter != "," else 7):
            y, x = scatter.integers(0, 3, 2) * 4
            art[y + 1 : y + 3, x + 1] = LEAF
            art[y + 1, x + 2] = LEAF
    for y, line in enumerate(shape):
        for x, ink in enumerate(line):
            if ink != " ":
                art[y, x] = _INKS[ink]
    return art


def _water_art(column: int, row: int, ripple: int) -> np.ndarray:
    art = np.full((TILE_PX, TILE_PX), WATER, np.uint8)
    for y, left in ((2, 1), (8, 7)) if (column + row) % 2 else ((5, 4),):
        x = (left + 2 * ripple) % 8
        art[y, x : x + 4] = FOAM
        art[y + 1, x + 1 : x + 3] = FOAM
    return art


def _house_art(roof: int) -> np.ndarray:
    """uint8 [24, 24]: a roof over a wall with a door and a window."""
    art = np.full((24, 24), roof, np.uint8)
    art[12:] = WHITE if roof != WHITE else GREY
    art[3:12:4, 2:22] = INK
    art[11:13] = INK
    art[[0, 23]] = INK
    art[:, [0, 23]] = INK
    art[15:23, 4:10] = BROWN
    art[18, 8] = YELLOW
    art[15:20, 14:20] = INK
    art[16:19, 15:19] = YELLOW if roof != YELLOW else FOAM
    return art


# fmt: off
_INKS = {
    " ": -1, "#": INK, "g": GRASS, "l": LEAF, "n": PINE, "b": WATER, "c": FOAM, "s": SAND, "k": BROWN, "p": PLANK,
    "r": RED, "y": YELLOW, "w": WHITE, "v": VIOLET, "e": GREY, "o": ORANGE, "f": SKIN,
}


def _flowers(ink: str) -> tuple[str, ...]:
    two = 2 * ink
    return ("", f" {two}", f" {two}   {two}", f"      {two}", "", f"   {two}    {two}", f"   {two}    {two}", "",
            f"{two}   {two}", f"{two}   {two}  {two}", f"         {two}")


def _crown(a: str, b: str) -> tuple[str, ...]:
    """A round tree, `a` in the light and `b` in the shade."""
    return ("    ####", f"  ##{4 * a}##", f" #{6 * a}{2 * b}#", f" #{5 * a}{3 * b}#", f"#{6 * a}{4 * b}#",
            f"#{4 * a}{6 * b}#", f" #{2 * a}{6 * b}#", f" #{8 * b}#", "  ########", "    #kk#", "    #kk#", "    ####")


_FIR = ("     ##", "    #nn#", "    #nn#", "   #nnll#", "   #nnnn#", "  #nnnnll#", "  #nnnnnn#", " #nnnnnnll#",
        " #nnnnnnnn#", "  ########", "    #kk#", "    ####")
_PLANKS = ("kkkkkkkkkkkk", "", "", "kkkkkkkkkkkk", "", "", "", "kkkkkkkkkkkk", "", "", "", "kkkkkkkkkkkk")
_MUSHROOMS = ("", "  rrrr", " rrwrrr", " rrrrwr", "   ww", "   ww     r", "         rrr", "          w", "          w")
_CROPS = ("", " ll  ll  ll", " ly  ly  ly", " ll  ll  ll", "", "", "", " ll  ll  ll", " ly  ly  ly", " ll  ll  ll")
_FENCE = ("", "", " kk      kk", " kk      kk", "pppppppppppp", "pppppppppppp", " kk      kk", "pppppppppppp",
          "pppppppppppp", " kk      kk")
_ROCK = ("", "", "   #####", "  #eeeee##", " #ewweeeee#", " #eweeeeee#", "#eeeeeeeee#", "#eeeeeeeee#", "#eeeeeeeee#",
         " ##########")
_SIGN = ("", "##########", "#pppppppp#", "#p##p###p#", "#pppppppp#", "##########", "    kk", "    kk",
         "    kk", "    kk")
_WELL = ("  ########", " #eeeeeeee#", "#ee######ee#", "#e#bbbbbb#e#", "#e#bbccbb#e#", "#e#bbbbbb#e#", "#ee######ee#",
         "#eeeeeeeeee#", "#e#ee#ee#ee#", "#eeeeeeeeee#", " ##########")

TILES: dict[str, tuple[int, tuple[str, ...]]] = {
    ".": (GRASS, ()),
    ",": (GRASS, ()),
    "r": (GRASS, _flowers("r")),
    "y": (GRASS, _flowers("y")),
    "w": (GRASS, _flowers("w")),
    "v": (GRASS, _flowers("v")),
    "m": (GRASS, _MUSHROOMS),
    "p": (SAND, ("", "  p", "", "       p", "", "", "   p", "", "         p", "", "    p")),
    "s": (SAND, ("", "", "    ww", "", "", "", " ww", "", "", "       ww")),
    "=": (PLANK, _PLANKS),
    "c": (BROWN, _CROPS),
    "f": (GRASS, _FENCE),
    "o": (GRASS, _ROCK),
    "S": (GRASS, _SIGN),
    "W": (GRASS, _WELL),
    "T": (GRASS, _crown("l", "n")),
    "A": (GRASS, _crown("o", "r")),
    "P": (GRASS, _FIR),
}  # letter of GROUND -> (ground colour, lines of ink drawn over it); "~" is drawn by `_water_art`

_BODY = (" #rrrrrrrr#", " #frrrrrrf#", " #frrrrrrf#")
_HEADS = {
    BACK: ("   ######", "  #kkkkkk#", " #kkkkkkkk#", " #kffffffk#", " #f#ffff#f#", " #f#ffff#f#", "  #ffffff#",
           "  ########", *_BODY),
    FORWARD: ("   ######", "  #kkkkkk#", " #kkkkkkkk#", " #kkkkkkkk#", " #kkkkkkkk#", " #kkkkkkkk#", "  #kkkkkk#",
              "  ########", *_BODY),
    LEFT: ("   ######", "  #kkkkkk#", " #kkkkkkkk#", " #ffffkkkk#", " #f#fffkkk#", " #f#fffkkk#", "  #fffffk#",
           "  ########", "  #rrrrrr#", "  #rrffrr#", "  #rrffrr#"),
}  # facing -> the eleven upper rows of the walker
_LEGS = {
    (False, 0): ("  #rrrrrr#  ", "  #bb##bb#  ", "  #bb##bb#  ", "  #kk##kk#  ", "   ##  ##   "),
    (False, 1): ("  #rrrrrr#  ", "  #bb##bb#  ", "  #kk##bb#  ", "   ## #kk#  ", "       ##   "),
    (False, 2): ("  #rrrrrr#  ", "  #bb##bb#  ", "  #bb##kk#  ", "  #kk# ##   ", "   ##       "),
    (True, 0): ("  #rrrrrr#  ", "   #bbbb#   ", "   #bbbb#   ", "   #kkkk#   ", "    ####    "),
    (True, 1): ("  #rrrrrr#  ", "  #bb##bb#  ", " #bb#  #bb# ", " #kk#  #kk# ", "  ##    ##  "),
    (True, 2): ("  #rrrrrr#  ", "   #bbbb#   ", "   #bb#bb#  ", "  #kk# #kk# ", "   ##   ##  "),
}  # (in profile, stride) -> the five lowest rows
# fmt: on
