"""A gateway that others can reach: TLS, and nothing but the page for those who don't show its token."""

import ssl

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from worldline.cli import main
from worldline.clock import SystemClock
from worldline.errors import ControllerGone, Unauthenticated
from worldline.runtime.face import Face
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.service.client import Client
from worldline.transport.certificates import make_certificates
from worldline.verify.reader import verify_receipt
from worldline.verify.receipts import write_receipt

TINY = "worldline.testing.tiny:TinyWorld"
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("token")
    make_certificates(folder, ["a", "b"], SystemClock().wall_s(), gateway=["world.example"])
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "token").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def guarded(folder):
    face = Face("0.0.0.0", ("localhost",), folder / "token", folder / "gateway.pem", folder / "gateway.key")
    with Fleet.start(FleetPlan(hosts=("a", "b"), tls=folder, face=face, worlds=(TINY,))) as fleet:
        yield fleet


@pytest.fixture
def http(guarded, folder):
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    with httpx.Client(base_url=guarded.url, verify=trust, trust_env=False) as client:
        yield client


def test_the_page_is_served_to_all_and_nothing_else(http):
    for path in ("/", "/main.js", "/token.js", "/livez"):
        assert http.get(path).status_code == 200
    for path in (
        "/v1/sessions",
        "/v1/hosts",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/nothing",
        "/nothing",
        "//v1/hosts",
    ):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert http.post("/v1/tickets").status_code == 401


@pytest.mark.parametrize("shown", [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", TOKEN, f"Basic {TOKEN}"])
def test_another_token_is_none(http, shown):
    assert http.get("/v1/hosts", headers={"Authorization": shown}).status_code == 401


def test_who_shows_the_token_is_served(guarded, folder):
    with Client(guarded.url, token=TOKEN, ca=folder / "ca.pem") as client:
        assert [host.id for host in client.hosts()] == ["a", "b"]
    with Client(guarded.url, ca=folder / "ca.pem") as client, pytest.raises(Unauthenticated):
        client.hosts()
    with Client(guarded.url, token=TOKEN) as client, pytest.raises(ControllerGone, match="certificate"):
        client.hosts()


def test_a_session_moves_over_mutual_tls(guarded, folder, tmp_path):
    with Client(guarded.url, token=TOKEN, ca=folder / "ca.pem") as client:
        session, twin = (client.open(TINY, seed=7, host=host) for host in ("a", "b"))
        assert [block.digest for block in session.step(0, 1)] == [block.digest for block in twin.step(0, 1)]
        receipt = session.move("b", transport="tcp").receipt
        assert [block.digest for block in session.step(2, 3)] == [block.digest for block in twin.step(2, 3)]
        write_receipt(tmp_path / "r.json", receipt)
        keys = {signer.key for signer in client.signers() if signer.host == "b"}
        assert verify_receipt(tmp_path / "r.json", signers=keys).made_by == "b"
        for one in (session, twin):
            one.close()


def test_the_command_line_shows_it_too(guarded, folder, monkeypatch, capsys):
    monkeypatch.setenv("WORLDLINE_URL", guarded.url)
    monkeypatch.setenv("WORLDLINE_CA", str(folder / "ca.pem"))
    assert main(["hosts"]) == 5
    assert "UNAUTHENTICATED" in capsys.readouterr().err
    monkeypatch.setenv("WORLDLINE_TOKEN", TOKEN)
    assert main(["hosts"]) == 0


def test_a_request_under_another_name_is_not_served(http):
    shown = {"Authorization": f"Bearer {TOKEN}"}
    assert http.get("/v1/hosts", headers=shown).status_code == 200
    for other in ({"Host": "world.example"}, {"Origin": "http://localhost:1"}, {"Origin": "null"}):
        assert http.get("/v1/hosts", headers=shown | other).status_code == 401


def test_a_websocket_opens_with_a_ticket_once_or_with_the_token(guarded, http, folder):
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    url = guarded.url.replace("https", "wss") + "/v1/events"
    ticket = http.post("/v1/tickets", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert ticket["expires_in_s"] == 30
    with connect(f"{url}?ticket={ticket['ticket']}", ssl=trust, proxy=None) as socket:
        assert '"Snapshot"' in socket.recv(timeout=30)
    for wrong in (f"{url}?ticket={ticket['ticket']}", f"{url}?ticket=", url, f"{url}?token={TOKEN}"):
        with pytest.raises(InvalidStatus):
            connect(wrong, ssl=trust, proxy=None)
    shown = {"Authorization": f"Bearer {TOKEN}"}
    with connect(url, ssl=trust, additional_headers=shown, proxy=None) as socket:
        assert '"Snapshot"' in socket.recv(timeout=30)


def test_up_refuses_what_would_be_open_to_others(capsys, folder):
    assert main(["up", "--listen", "0.0.0.0", "--json"]) == 5
    assert "UNAUTHENTICATED" in capsys.readouterr().out
    assert main(["up", "--listen", "0.0.0.0", "--token-file", str(folder / "token"), "--json"]) == 5
    assert main(["up", "--tls-cert", str(folder / "gateway.pem"), "--json"]) == 2
    (folder / "open").write_text(TOKEN)
    assert main(["up", "--token-file", str(folder / "open"), "--json"]) == 2
