"""A manifest as JSON, strictly typed both ways; the wire and the image file share this form.

Field names are those of `schema.layout`; a write rule is an object with its name in `rule`. What is decoded here is
well formed and within limits, and no more: whether a manifest makes sense for an arena is checked by whoever uses it.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, assert_never
from weakref import WeakValueDictionary

from msgspec import Meta, Raw

from worldline.errors import Malformed
from worldline.schema.inventory import Append, Free, Kind, Once, Realloc, Ring, Roll, Static, WriteRule
from worldline.schema.layout import (
    DIMS_MAX,
    LEAF_BYTES_MAX,
    LEAF_BYTES_MIN,
    SEGMENTS_MAX,
    VIEWS_MAX,
    Layout,
    Manifest,
    Placement,
    Segment,
    View,
)
from worldline.schema.remembered import remembered
from worldline.wire.body import Body, Count, decode_json, encode_json

NAME_CHARS_MAX = 1024
LAYOUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""No limit of its own: records and images that hold a layout have lower ones."""

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Dim: TypeAlias = Annotated[int, Meta(ge=-DIMS_MAX, lt=DIMS_MAX)]
Dims: TypeAlias = Annotated[tuple[Count, ...], Meta(max_length=DIMS_MAX)]


class RollBody(Body, frozen=True, tag_field="rule", tag="roll"):
    dim: Dim
    shift: Count
    keep: Count


class RingBody(Body, frozen=True, tag_field="rule", tag="ring"):
    dim: Dim
    slot: Count


class AppendBody(Body, frozen=True, tag_field="rule", tag="append"):
    dim: Dim


class ReallocBody(Body, frozen=True, tag_field="rule", tag="realloc"):
    pass


class OnceBody(Body, frozen=True, tag_field="rule", tag="once"):
    pass


class StaticBody(Body, frozen=True, tag_field="rule", tag="static"):
    pass


class FreeBody(Body, frozen=True, tag_field="rule", tag="free"):
    pass


RuleBody: TypeAlias = RollBody | RingBody | AppendBody | ReallocBody | OnceBody | StaticBody | FreeBody


class SegmentBody(Body, frozen=True):
    name: Name
    nbytes: Count
    kind: Kind
    write: RuleBody


class ViewBody(Body, frozen=True):
    path: Name
    dtype: Annotated[str, Meta(min_length=1, max_length=32)]
    shape: Dims
    strides: Dims
    segment: Annotated[int, Meta(ge=0, lt=SEGMENTS_MAX)]
    offset_bytes: Count


class PlacementBody(Body, frozen=True):
    offset: Count
    capacity: Count
    resident: bool


class LayoutBody(Body, frozen=True):
    segments: Annotated[list[SegmentBody], Meta(max_length=SEGMENTS_MAX)]
    views: Annotated[list[ViewBody], Meta(max_length=VIEWS_MAX)]
    leaf_bytes: Annotated[int, Meta(ge=LEAF_BYTES_MIN, le=LEAF_BYTES_MAX)]


class ManifestBody(Body, frozen=True):
    """The JSON form of a `Manifest`, to be a field of a larger body."""

    layout: Raw
    """A `LayoutBody`: it says the same at every boundary, and is then not read or written again."""
    placements: Annotated[list[PlacementBody], Meta(max_length=SEGMENTS_MAX)]
    block: Count


def manifest_to_body(manifest: Manifest) -> ManifestBody:
    """The JSON form. Raises `Malformed` for a layout that breaks the format, and where segments and placements don't
    pair up; the rest is checked when the form is encoded.
    """
    _check_pairs(len(manifest.layout.segments), len(manifest.placements))
    placements = [PlacementBody(p.offset, p.capacity, p.resident) for p in manifest.placements]
    return ManifestBody(Raw(_layout_text(manifest.layout)), placements, manifest.block)


def manifest_from_body(body: ManifestBody) -> Manifest:
    """The manifest of a decoded form. Raises `Malformed` for a layout that breaks the format, and when segments and
    placements don't pair up.
    """
    layout = _same_layout(bytes(body.layout))
    _check_pairs(len(layout.segments), len(body.placements))
    placements = tuple(Placement(p.offset, p.capacity, p.resident) for p in body.placements)
    return Manifest(layout, placements, body.block)


@remembered
def _layout_text(layout: Layout) -> bytes:
    segments = [SegmentBody(s.name, s.nbytes, s.kind, _rule_to_body(s.write)) for s in layout.segments]
    views = [ViewBody(v.path, v.dtype, v.shape, v.strides, v.segment, v.offset_bytes) for v in layout.views]
    return encode_json(LayoutBody(segments, views, layout.leaf_bytes), LAYOUT_BYTES_MAX)


def _layout_of(text: bytes) -> Layout:
    body = decode_json(text, LayoutBody, LAYOUT_BYTES_MAX)
    segments = tuple(Segment(s.name, s.nbytes, s.kind, _rule_from_body(s.write)) for s in body.segments)
    views = tuple(View(v.path, v.dtype, v.shape, v.strides, v.segment, v.offset_bytes) for v in body.views)
    return Layout(segments, views, body.leaf_bytes)


_read: WeakValueDictionary[bytes, Layout] = WeakValueDictionary()
"""By their texts, for as long as somebody has them."""


def _same_layout(text: bytes) -> Layout:
    """One object for the same text."""
    layout = _read.get(text)
    if layout is None:
        layout = _read[text] = _layout_of(text)
    return layout


def _check_pairs(segments: int, placements: int) -> None:
    if segments != placements:
        raise Malformed(f"a manifest has {segments} segments and {placements} placements")


def _rule_to_body(rule: WriteRule) -> RuleBody:
    match rule:
        case Roll(dim, shift, keep):
            return RollBody(dim, shift, keep)
        case Ring(dim, slot):
            return RingBody(dim, slot)
        case Append(dim):
            return AppendBody(dim)
        case Realloc():
            return ReallocBody()
        case Once():
            return OnceBody()
        case Static():
            return StaticBody()
        case Free():
            return FreeBody()
        case _:
            assert_never(rule)


def _rule_from_body(body: RuleBody) -> WriteRule:
    match body:
        case RollBody():
            return Roll(body.dim, body.shift, body.keep)
        case RingBody():
            return Ring(body.dim, body.slot)
        case AppendBody():
            return Append(body.dim)
        case ReallocBody():
            return Realloc()
        case OnceBody():
            return Once()
        case StaticBody():
            return Static()
        case FreeBody():
            return Free()
        case _:
            assert_never(body)
