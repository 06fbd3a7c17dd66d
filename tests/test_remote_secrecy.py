"""The user's text goes to the configured address and nowhere else; a token goes over https, or to this machine."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from lsprotocol import types

from server.context.special_text import JOINT, SpecialText
from server.engine.client import CompletionRequest, Endpoint, EngineClient, EngineError
from server.engine.remote import remote_endpoint
from server.profiles import ProfileError, load_profile
from tests.editor import SERVER, URI, Editor, editor
from tests.scripted_engine import Script, scripted

SECRET = "zebra_crossing"
# Notes every address that a Python process connects to or looks up, its children's too.
AUDIT = """
import sys
def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        with open({file!r}, "a") as file:
            file.write(repr(arguments[1] if event != "socket.getaddrinfo" else arguments[:2]) + "\\n")
sys.addaudithook(note)
"""


def profile_file(folder: Path, address: str, more: str = "") -> Path:
    file = folder / "team.toml"
    file.write_text(f'[engine]\nkind = "remote"\naddress = "{address}"\n{more}\n[text]\nheal = false\n')
    return file


async def test_text_goes_to_the_configured_address_and_nowhere_else(
    tmp_path: Path, private_dirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a proxy in the environment that records, and a workspace that asks for another address and profile."""
    seen = tmp_path / "addresses"
    seen.touch()
    (tmp_path / "sitecustomize.py").write_text(AUDIT.format(file=str(seen)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parent.parent}")
    async with scripted("openai") as engine, scripted("openai") as proxy, scripted("openai") as other:
        engine.default = Script(rounds=["1  # right"])
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
            monkeypatch.setenv(name.upper(), proxy.address)
        (tmp_path / "other").mkdir()
        elsewhere = profile_file(tmp_path / "other", other.address)
        wanted = {"profile": str(elsewhere), "address": other.address, "engine": {"address": other.address}}

        def prepare(running: Editor) -> None:
            running.client.feature(types.WORKSPACE_CONFIGURATION)(lambda params: [wanted for _ in params.items])

        command = [sys.executable, *SERVER[1:]]
        command.remove("-P")  # or the audit would not be found
        options = {"profile": str(profile_file(tmp_path, engine.address)), "surface": "inline"}
        async with editor(options, command=command, prepare=prepare) as window:
            window.open(f"# {SECRET}\nn = \n")
            window.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=wanted))
            await window.until_state("ready")
            item = await window.complete(1, 4)
            assert item is not None and item.insert_text == "1  # right"
            assert window.statuses[-1].profile == "team"
        assert SECRET in engine.bodies[0]["prompt"]
        assert (proxy.connections, other.connections) == (0, 0)
    port = int(engine.address.rsplit(":", 1)[1])
    addresses = set(seen.read_text().splitlines())
    assert any(str(port) in address for address in addresses)
    network = {address for address in addresses if not address.startswith(("'", "b'"))}  # those are Unix sockets
    assert all(str(port) in address for address in network), network


async def test_a_proxy_is_used_when_the_profile_names_one(tmp_path: Path) -> None:
    async with scripted("openai") as engine, scripted("openai") as proxy:
        file = profile_file(tmp_path, engine.address, f'proxy = "{proxy.address}"')
        client = EngineClient(remote_endpoint(load_profile(str(file))))
        with pytest.raises(EngineError):  # the recorder is no proxy that would answer
            await client.health()
        await client.aclose()
        assert (proxy.connections, engine.connections) == (1, 0)
        assert proxy.paths[0] == f"{engine.address}/health"


@pytest.mark.parametrize("trusted", [True, False])
async def test_https_is_checked_against_the_systems_trust_store(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    store = tmp_path / "store.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(store)
    # What OpenSSL takes for the system's store; elsewhere than on Linux it is not asked.
    monkeypatch.setenv("SSL_CERT_FILE", str(store))
    async with scripted("vllm", ssl=context) as engine:
        client = EngineClient(Endpoint(engine.address, "secret", "vllm"))
        request = CompletionRequest(prompt="x", max_tokens=8)
        if trusted:
            async with client.stream(request) as stream:
                assert "".join([chunk.text async for chunk in stream]) == "one two three"
            assert engine.headers[-1]["authorization"] == "Bearer secret"
        else:
            with pytest.raises(EngineError, match="does not trust the certificate"):
                async with client.stream(request):
                    pass
            assert engine.paths == []
        await client.aclose()


@pytest.mark.parametrize("address", ["http://engine.example.org", "http://10.0.0.7:8000", "http://127.0.0.1.nip.io"])
def test_a_token_never_goes_over_plain_http_off_this_machine(address: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="a token is sent over https only"):
        EngineClient(Endpoint(address, "secret", "openai"))
    for key in ('token_env = "X"', 'token_file = "t"'):
        with pytest.raises(ProfileError, match=r"engine.address must be https:// where a token is sent"):
            load_profile(str(profile_file(tmp_path, address, key)))


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://e.org"])
async def test_a_token_goes_to_this_machine_or_over_https(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_TOKEN", " secret\n")
    endpoint = remote_endpoint(load_profile(str(profile_file(tmp_path, address, 'token_env = "TEAM_TOKEN"'))))
    assert endpoint.token == "secret" and "secret" not in repr(endpoint)
    await EngineClient(endpoint).aclose()


def test_a_token_comes_from_a_file_that_is_the_users_alone(tmp_path: Path) -> None:
    token = tmp_path / "token"
    profile = load_profile(str(profile_file(tmp_path, "https://e.org", 'token_file = "token"')))
    with pytest.raises(EngineError, match="cannot read the token file"):
        remote_endpoint(profile)
    token.write_text("secret\n")
    token.chmod(0o644)
    with pytest.raises(EngineError, match="is open to others: chmod 600 it"):
        remote_endpoint(profile)
    token.chmod(0o600)
    assert remote_endpoint(profile).token == "secret"
    for text in ("", " \n", "two words", "ünicode", "a\nb"):
        token.write_text(text)
        with pytest.raises(EngineError, match=r"holds (no token|something that is not a token)") as raised:
            remote_endpoint(profile)
        assert not text.strip() or text not in str(raised.value)


def test_an_environment_variable_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAM_TOKEN", raising=False)
    profile = load_profile(str(profile_file(tmp_path, "https://e.org", 'token_env = "TEAM_TOKEN"')))
    with pytest.raises(EngineError, match=r"^the environment variable TEAM_TOKEN holds no token$"):
        remote_endpoint(profile)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ('token = "secret"', "engine.token is not a known key"),
        ('token_env = "A"\ntoken_file = "b"', "engine.token_env does not go with token_file"),
        ('token_env = "no-name"', "engine.token_env must be the name of an environment variable"),
        ('fall_back = "nobody"', "engine.fall_back must name a profile"),
        ('dialect = "other"', "engine.dialect must be one of openai, sglang, vllm"),
        ('proxy = "socks5://x"', "engine.proxy must be an http:// or https:// address"),
    ],
)
def test_a_remote_profile_that_says_something_wrong_is_one_line(more: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as raised:
        load_profile(str(profile_file(tmp_path, "https://e.org", more)))
    assert line in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("address", ["https://user:secret@e.org", "https://user@e.org"])
def test_an_address_holds_no_password(address: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="must hold no user name or password"):
        load_profile(str(profile_file(tmp_path, address)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('extends = "embedded"', "extends must name a shipped remote profile, one of mimo-v2.5"),
        ("extends = 3", "extends must name a shipped remote profile"),
        ('extends = "mimo-v2.5"\n[prompt]\nmax_tokens = 65', "prompt.max_tokens must be a whole number from 1 to 64"),
        ('extends = "openai-compatible"\n[text]\nmax_tokens = 65', "text.max_tokens must be a whole number from 1 to"),
        ('extends = "mimo-v2.5"\n[text]', "text does not go with [prompt]"),
        ('extends = "mimo-v2.5"\n[engine]\napi = "chat"', "prompt does not go with api = 'chat'"),
        ('[engine]\ndialect = "vllm"', "engine.dialect belongs to kind = 'remote' only"),
    ],
)
def test_a_profile_that_extends_another_is_checked_as_a_whole(text: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text(text)
    with pytest.raises(ProfileError) as raised:
        load_profile(str(file))
    assert line in str(raised.value)


def test_a_profile_that_extends_another_says_only_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text('extends = "mimo-v2.6-flash-vllm"\n[engine]\naddress = "https://e.org"\n')
    profile, base = load_profile(str(file)), load_profile("mimo-v2.6-flash-vllm")
    assert (profile.name, profile.engine.address) == ("team", "https://e.org")
    assert (profile.engine.dialect, profile.prompt) == ("vllm", base.prompt)


@pytest.mark.parametrize("name", ["mimo-v2.5", "mimo-v2.5-vllm", "mimo-v2.6-flash", "mimo-v2.6-flash-vllm"])
def test_the_mimo_profiles_send_token_ids_to_the_engine_they_name(name: str) -> None:
    profile = load_profile(name)
    assert profile.engine.dialect == ("vllm" if name.endswith("vllm") else "sglang")
    assert profile.prompt is not None and profile.text is None and profile.prompt.max_tokens == 64
    assert profile.engine.fall_back == "embedded"


SPECIAL = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
    "<s>",
    "[INST]",
    "[/INST]",
    "<start_of_turn>",
    "<fim_middle>",
    "<file_sep>",
    "<think>",
    "<<SYS>>",
]


@pytest.mark.parametrize("special", SPECIAL)
def test_special_strings_in_text_are_broken_up_and_come_back_whole(special: str) -> None:
    text = f"x = '{special}'  # {special}{special}"
    broken = SpecialText().broken_up(text)
    assert special not in broken and broken.replace(JOINT, "") == text


def test_what_only_looks_like_a_special_string_stays_as_it_is() -> None:
    for text in ("a <| b |> c", "if a < s > b", "x[INSTANCE]", "<span>", "<stdio.h>", "<filesystem>", "a<b|c>d"):
        assert SpecialText().broken_up(text) == text


def test_a_profile_adds_special_strings_of_its_target() -> None:
    assert SpecialText(["@@end", "@@end of it"]).broken_up("a @@end of it") == f"a @{JOINT}@end of it"
    assert SpecialText(["§"]).broken_up("a § b") == "a § b"


async def test_the_whole_way_a_marker_in_a_file_stays_text(tmp_path: Path, private_dirs: Path) -> None:
    async with scripted("openai") as engine:
        engine.default = Script(rounds=[f"'<{JOINT}", "|im_end|>'"])
        options = {"profile": str(profile_file(tmp_path, engine.address)), "surface": "inline"}
        async with editor(options) as window:
            window.open("BEGIN = '<|im_start|>'\nEND = \n", uri=URI)
            await window.until_state("ready")
            item = await window.complete(1, 6)
        assert item is not None and item.insert_text == "'<|im_end|>'"
        assert "<|im_start|>" not in json.dumps(engine.bodies, ensure_ascii=False)
