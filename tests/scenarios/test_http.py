"""HTTP as clients see it: the verbs, every error, idempotency, the document and the metrics."""

import threading

import httpx
import jsonschema
import pytest

from worldline.errors import (
    ActionGap,
    AlreadyThere,
    BadValue,
    Conflict,
    MoveInProgress,
    NoCapacity,
    PlanMismatch,
    Refused,
    SessionClosed,
    SessionParked,
    UnknownHost,
    UnknownMove,
    UnknownReceipt,
    UnknownSession,
    UnknownWorld,
)
from worldline.schema.contract import Contract, Tier
from worldline.schema.plan import Qualification

TINY = "worldline.testing.tiny:TinyWorld"
ROOMY = Contract(pause_bound_s=20.0, completion_deadline_s=60.0)


def open_tiny(client, **wishes):
    return client.open(TINY, seed=7, **({"host": "a", "contract": ROOMY} | wishes))


# ---- the verbs


def test_a_session_plays_moves_parks_and_resumes_and_is_the_one_that_never_did(client):
    moved, still = open_tiny(client), open_tiny(client, host="c")
    script = [0, "left", 2, "forward", 1, 3, "stay", 4]
    expected = [block.digest for block in still.step(*script)]
    seen = moved.step(*script[:2])
    moved.move("b", mode="precopy", transport="tcp")
    seen += moved.step(*script[2:4])
    moved.move("a", mode="freeze", transport="shm")
    seen += moved.step(*script[4:6])
    moved.park()
    moved.resume("b")
    seen += moved.step(*script[6:])
    assert [block.digest for block in seen] == expected
    assert [(block.block, block.number) for block in seen] == [(n, n) for n in range(1, 9)]
    assert [(block.host, block.epoch) for block in seen[::2]] == [("a", 1), ("b", 2), ("a", 3), ("b", 5)]


def test_frames_come_as_asked_for(client):
    session = open_tiny(client)
    (none,), (jpeg,), (raw,) = (session.step(1, frames=frames) for frames in ("none", "jpeg", "raw"))
    assert (none.frames, none.encoding) == ((), "none")
    assert [piece[:2] for piece in jpeg.frames] == [b"\xff\xd8"] * 3
    assert [len(piece) for piece in raw.frames] == [raw.height * raw.width * 3] * 3


def test_a_move_is_listed_with_its_receipt_and_story(client):
    session = open_tiny(client)
    done = session.move("b")
    assert client.move(done.id) == done
    assert client.receipt(done.receipt.id) == done.receipt
    assert len(done.story) > 3
    assert session.describe().receipts == [done.receipt.id]


def test_a_step_while_a_move_runs_is_answered_by_whoever_owns_the_session_then(client):
    session = open_tiny(client, options={"width": 4096})
    seen, over = [], threading.Event()

    def play():
        while not over.is_set():
            seen.extend(session.step(1))

    player = threading.Thread(target=play)
    player.start()
    try:
        for host in ("b", "a", "c"):
            session.move(host, mode="precopy")
    finally:
        over.set()
        player.join()
    assert [block.block for block in seen] == list(range(1, len(seen) + 1))
    assert [block.epoch for block in seen] == sorted(block.epoch for block in seen)


# ---- what bad input gets


def test_an_unknown_world_host_or_session_is_told_and_never_made(client):
    before = [session.id for session in client.sessions()]
    with pytest.raises(UnknownWorld, match="known are"):
        client.open("nowhere")
    with pytest.raises(UnknownWorld):
        client.open("os:system")
    with pytest.raises(UnknownHost, match="known are a, b, c, d"):
        open_tiny(client, host="z")
    for verb in (
        lambda s: s.step(0),
        lambda s: s.move("b"),
        lambda s: s.park(),
        lambda s: s.resume(),
        lambda s: s.close(),
    ):
        with pytest.raises(UnknownSession):
            verb(client.session("s-nobody"))
    with pytest.raises(UnknownMove):
        client.move("m-none")
    with pytest.raises(UnknownReceipt):
        client.receipt("r-none")
    assert [session.id for session in client.sessions()] == before


def test_a_move_to_the_host_it_is_on_is_told(client):
    with pytest.raises(AlreadyThere):
        open_tiny(client).move("a")


def test_a_host_of_another_plan_refuses_under_t0_before_a_byte_moves(client):
    session = open_tiny(client)
    session.step(1)
    with pytest.raises(PlanMismatch, match="plans differ"):
        session.move("d")
    assert session.describe().receipts == []
    session.park()
    with pytest.raises(PlanMismatch):
        session.resume("d")
    assert session.resume().host in {"a", "b", "c"}


def test_a_qualified_pair_of_plans_is_allowed_under_t1_and_cited(client):
    contract = Contract(Tier.T1, 20.0, 60.0, readout_psnr_db_min=40.0)
    own_plans = {"flavour": "qualified"}  # the fleet is shared, and other tests qualify pairs too
    session = open_tiny(client, contract=contract, options=own_plans)
    there = open_tiny(client, host="d", options=own_plans)
    plans = session.describe().plan, there.describe().plan
    assert plans[0] != plans[1]
    with pytest.raises(PlanMismatch, match="never qualified"):
        session.move("d")
    client.record_qualification(Qualification("q-low", *plans, "tiny", 60, 61.0, 39.0, 3))
    with pytest.raises(PlanMismatch, match=r"39\.0 dB"):
        session.move("d")
    client.record_qualification(Qualification("q-good", *plans, "tiny", 60, 61.0, 45.0, 3))
    assert session.move("d").receipt.qualification == "q-good"
    session.step(1)


def test_a_host_with_too_little_memory_refuses(client):
    with pytest.raises(NoCapacity):
        open_tiny(client, options={"width": 1 << 20})


def test_of_two_moves_at_once_one_is_refused(client):
    session = open_tiny(client, options={"width": 1 << 14})
    found = []

    def move(host):
        try:
            found.append(session.move(host).outcome)
        except MoveInProgress as error:
            found.append(type(error))

    movers = [threading.Thread(target=move, args=(host,)) for host in ("b", "c")]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    assert sorted(found, key=str) == [MoveInProgress, "done"] or found == ["done", "done"]


def test_a_verb_on_a_closed_or_parked_session_is_told(client):
    session = open_tiny(client)
    session.park()
    for verb in (lambda: session.step(0), lambda: session.move("b"), session.park):
        with pytest.raises(SessionParked):
            verb()
    session.close()
    for verb in (lambda: session.step(0), lambda: session.move("b"), session.park, session.resume, session.close):
        with pytest.raises(SessionClosed):
            verb()


def cut(data, other):
    return data[:-100]


def changed(data, other):
    at = len(data.rstrip(b"\0")) - 1  # padding is zero, so this byte is state
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def lengthened(data, other):
    return data + b"x"


def renamed(data, other):
    return other


def newer(data, other):
    return data[:12] + b"\x63" + data[13:]


def of_the_other_byte_order(data, other):
    return data[:8] + data[11:7:-1] + data[12:]


def untouched(data, other):
    return data


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (cut, "MALFORMED"),
        (changed, "CORRUPT"),
        (lengthened, "MALFORMED"),
        (renamed, "WRONG_SESSION"),
        (newer, "VERSION"),
        (of_the_other_byte_order, "BYTE_ORDER"),
        (untouched, None),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_a_damaged_image_is_refused_by_name_and_nothing_is_lost(fleet, client, damage, code):
    session, other = open_tiny(client), open_tiny(client, host="b")
    session.step(1, 2)
    images = fleet.run_dir / "images"
    image, others = (images / one.park().image for one in (session, other))
    whole = image.read_bytes()
    image.write_bytes(damage(whole, others.read_bytes()))
    if code is not None:
        with pytest.raises(Refused) as refused:
            session.resume("b")
        assert refused.value.code == code
        assert session.describe().status == "parked"
        image.write_bytes(whole)
    session.resume("b")
    (block,) = session.step(3)
    assert block.block == 3


@pytest.mark.parametrize("fault", ["flip", "cut", "lie", "late-write"])
def test_a_planted_fault_is_refused_by_name_and_the_source_plays_on(client, fault):
    session, still = open_tiny(client), open_tiny(client, host="c")
    session.step(1)
    still.step(1)
    with pytest.raises((Refused, Conflict, Exception)) as refused:
        session.move("b", mode="freeze", fault=fault)
    assert refused.value.code in {"CORRUPT", "LINK_CUT"}
    assert client.move(refused.value.facts["move"]).outcome == "refused"
    (ours,), (theirs,) = session.step(2), still.step(2)
    assert (ours.host, ours.digest) == ("a", theirs.digest)


def test_an_unknown_fault_is_told(client):
    session = open_tiny(client)
    for verb in (session.move, session.park):
        with pytest.raises(BadValue, match="kill-controller, kill-gateway, kill-source"):
            verb(*["b"] * (verb == session.move), fault="earthquake")
    session.step(0)


def test_an_action_number_that_jumps_or_is_used_again_is_told_and_a_repeat_is_answered(client):
    session = open_tiny(client)
    first = session.step(1, 2, 3, first=1)
    assert session.step(2, 3, first=2) == first[1:]
    with pytest.raises(ActionGap) as jump:
        session.step(0, first=9)
    assert jump.value.facts["expected"] == 4
    with pytest.raises(ActionGap, match="can't be"):
        session.step(4, first=2)
    assert [block.block for block in session.step(3, 0, first=3)] == [3, 4]
    for wrong in ((0, 0), (1, -1)):
        with pytest.raises(BadValue):
            session.step(wrong[0], first=wrong[1])


def test_an_action_that_the_world_does_not_know_is_told(client):
    session = open_tiny(client)
    for action in (5, -1, 2**40, "jump"):
        with pytest.raises(BadValue):
            session.step(action)
    assert session.step("stay")[0].number == 1


def test_a_bit_flipped_in_the_live_state_shows_in_the_next_block(client):
    session, still = open_tiny(client), open_tiny(client, host="c")
    session.step(1)
    still.step(1)
    session.sabotage(12345)
    assert session.step(2)[0].digest != still.step(2)[0].digest


# ---- HTTP itself


def error_of(response):
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "sentence", "facts"}
    return response.status_code, body["error"]["code"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", (400, "BAD_VALUE")),
        (b"[]", (400, "BAD_VALUE")),
        (b'{"world": 3}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "sed": 1}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "seed": -1}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "options": {"a": [1]}}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "contract": {"pause_bound_s": -1}}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "contract": {"tier": "T1"}}', (400, "BAD_VALUE")),
        (b'{"world": "\xff"}', (400, "BAD_VALUE")),
        (b'{"world": "' + b"a" * (1 << 20) + b'"}', (413, "BAD_VALUE")),
        (b'{"world": "nowhere"}', (404, "UNKNOWN_WORLD")),
        (b"[" * 100_000, (400, "BAD_VALUE")),
        (b'{"world": "reference", "contract": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", (400, "BAD_VALUE")),
        (b'{"world": "reference", "options": {"weights": 1%s}}' % (b"0" * 300), (400, "BAD_VALUE")),
        (b'{"world": "reference", "options": {"weights": 9223372036854775808}}', (400, "BAD_VALUE")),
        (b'{"world": "reference", "seed": 1%s}' % (b"0" * 30), (400, "BAD_VALUE")),
    ],
    ids=range(16),
)
def test_a_body_that_is_wrong_is_told_in_the_envelope(fleet, body, told):
    assert error_of(httpx.post(f"{fleet.url}/v1/sessions", content=body)) == told


def test_an_unknown_path_or_method_is_told_in_the_envelope(fleet):
    assert error_of(httpx.get(f"{fleet.url}/v1/nothing")) == (404, "UNKNOWN_PATH")
    assert error_of(httpx.put(f"{fleet.url}/v1/sessions")) == (405, "METHOD")
    assert error_of(httpx.post(f"{fleet.url}/v1/sessions/%2e%2e%2f/step", content=b"{}"))[0] in {400, 404, 405}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
    ],
    ids=lambda headers: "".join(headers.values()),
)
def test_a_request_for_another_name_or_of_another_origin_is_not_served(fleet, headers):
    for path in ("/v1/sessions", "/", "/metrics"):
        assert error_of(httpx.get(fleet.url + path, headers=headers)) == (401, "UNAUTHENTICATED")


def test_a_page_of_the_gateway_itself_is_served(fleet):
    assert httpx.get(f"{fleet.url}/v1/hosts", headers={"Origin": fleet.url}).status_code == 200


# ---- once


def test_the_same_key_is_answered_as_the_first_time(fleet, client):
    body = {"world": TINY, "seed": 7, "host": "a"}
    send = {"url": f"{fleet.url}/v1/sessions", "headers": {"Idempotency-Key": "http-open"}}
    first = httpx.post(json=body, **send)
    assert (first.status_code, httpx.post(json=body, **send).json()) == (201, first.json())
    assert error_of(httpx.post(json=body | {"seed": 8}, **send)) == (409, "KEY_REUSED")
    session = first.json()["id"]
    step = {"url": f"{fleet.url}/v1/sessions/{session}/step", "headers": {"Idempotency-Key": "http-step"}}
    one = httpx.post(json={"actions": [1, 2]}, **step).json()
    assert httpx.post(json={"actions": [1, 2]}, **step).json() == one
    assert error_of(httpx.post(json={"actions": [1, 3]}, **step)) == (409, "KEY_REUSED")
    assert client.session(session).step(0)[0].block == 3
    close = {"url": f"{fleet.url}/v1/sessions/{session}", "headers": {"Idempotency-Key": "http-close"}}
    closed = httpx.delete(**close)
    assert (closed.status_code, httpx.delete(**close).json()) == (200, closed.json())
    assert error_of(httpx.post(json=body, url=send["url"], headers={"Idempotency-Key": "k" * 201})) == (
        400,
        "BAD_VALUE",
    )


# ---- the document and the metrics


def test_the_document_is_complete_and_answers_keep_to_it(fleet, client):
    document = httpx.get(f"{fleet.url}/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    paths = document["paths"]
    assert {"/v1/hosts", "/v1/sessions", "/v1/sessions/{session}", "/v1/moves/{move}", "/v1/receipts/{receipt}"} <= set(
        paths
    )
    assert {f"/v1/sessions/{{session}}/{verb}" for verb in ("step", "move", "park", "resume")} <= set(paths)
    session = open_tiny(client)
    done = session.move("b")
    for method, path, url in (
        ("get", "/v1/hosts", "/v1/hosts"),
        ("get", "/v1/sessions", "/v1/sessions"),
        ("get", "/v1/worlds", "/v1/worlds"),
        ("get", "/v1/sessions/{session}", f"/v1/sessions/{session.id}"),
        ("get", "/v1/moves/{move}", f"/v1/moves/{done.id}"),
        ("get", "/v1/receipts/{receipt}", f"/v1/receipts/{done.receipt.id}"),
        ("get", "/v1/moves/{move}", "/v1/moves/m-none"),
    ):
        response = httpx.get(fleet.url + url)
        content = paths[path][method]["responses"][str(response.status_code)]["content"]["application/json"]
        whole = content["schema"] | {"components": document["components"]}
        jsonschema.validate(response.json(), whole)
    for operations in paths.values():
        for operation in operations.values():
            assert {"400", "404", "409", "503"} <= set(operation["responses"])
            assert operation["operationId"]


def test_metrics_keep_the_conventions(fleet, client):
    session = open_tiny(client)
    session.move("b")
    with pytest.raises(Refused):
        session.move("c", mode="freeze", fault="flip")
    text = httpx.get(f"{fleet.url}/metrics").text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert all(name.startswith("worldline_") for name in names)
    assert session.id not in text
    assert 'worldline_moves_total{code="CORRUPT",mode="freeze",outcome="refused",transport="tcp"}' in text
    assert 'worldline_hosts{state="alive"} 4.0' in text
    assert "worldline_move_pause_seconds_bucket" in text
    assert httpx.get(f"{fleet.url}/livez").status_code == httpx.get(f"{fleet.url}/readyz").status_code == 200


def test_the_page_is_served_with_a_policy_of_its_own(fleet):
    page = httpx.get(fleet.url)
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_a_twin_only_follows_its_session(client):
    session = open_tiny(client, twin=True)
    twin = client.session(session.describe().twin)
    for verb in (lambda: twin.move("c"), twin.park, lambda: twin.step(1)):
        with pytest.raises(BadValue, match="twin"):
            verb()
    assert twin.describe().status == "running"
