"""Which certificates are believed, and what the server is told its name is: a private authority made on the spot."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rewardcore as rc
from tests.modes.conftest import MODES, Opener
from tests.modes.hostile_server import HostileServer, ok
from tests.modes.lookups import IN_PROCESS_MODES, judge_where

EXTENSIONS = """
[req]
distinguished_name = nobody
[nobody]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Authority:
    """Of no public repute. `directory` holds its certificate under its hash, as SSL_CERT_DIR wants it."""

    file: Path
    directory: Path
    server: ssl.SSLContext


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    openssl, folder = shutil.which("openssl"), tmp_path_factory.mktemp("authority")
    if openssl is None:
        pytest.skip("openssl makes the certificates, and is not installed")
    (folder / "extensions.cnf").write_text(EXTENSIONS)
    (folder / "hashed").mkdir()

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    config = ("-config", "extensions.cnf")
    run("req", "-x509", *config, *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=rewardcore tests",
        "-extensions", "authority", "-days", "2")  # fmt: skip
    run("req", *config, *_KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", "server.pem", "-extfile", "extensions.cnf", "-extensions", "server", "-days", "2")  # fmt: skip
    shutil.copy(folder / "ca.pem", folder / "hashed")
    run("rehash", "hashed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return Authority(folder / "ca.pem", folder / "hashed", context)


@pytest.fixture(scope="session")
def tls_server(authority: Authority) -> Iterator[HostileServer]:
    with HostileServer(tls=authority.server) as server:
        yield server


@pytest.fixture(autouse=True)
def no_certificates_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


# Certificates.


@pytest.mark.parametrize("by", ["SSL_CERT_FILE", "SSL_CERT_DIR", "ca_file"])
def test_a_private_authority_is_believed_where_it_is_named(
    mode: str,
    by: str,
    open_judge: Opener,
    authority: Authority,
    tls_server: HostileServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {}
    if by == "ca_file":
        options = {"ca_file": str(authority.file)}
    else:
        monkeypatch.setenv(by, str(authority.file if by == "SSL_CERT_FILE" else authority.directory))
    script = tls_server.script(ok)
    with open_judge(mode, rc.Endpoint(tls_server.base_url, "judge", **options)) as judge:
        verdicts = judge.judge(script.samples(2))
    assert [verdict.status for verdict in verdicts] == ["ok", "ok"], verdicts
    assert {headers["host"] for headers in script.headers} == {tls_server.authority}


def test_a_private_authority_that_nobody_named_is_not_believed(
    mode: str, open_judge: Opener, tls_server: HostileServer
) -> None:
    script = tls_server.script(ok)
    with open_judge(mode, rc.Endpoint(tls_server.base_url, "judge")) as judge:
        (verdict,) = judge.judge(script.samples(1))
    assert verdict.status == "failed"
    assert str(verdict.error).startswith("TlsFailed: ")
    assert tls_server.authority in str(verdict.error)
    assert script.requests == 0


def test_a_certificate_for_another_host_is_not_believed_whoever_signed_it(
    mode: str, open_judge: Opener, authority: Authority
) -> None:
    with HostileServer("127.0.0.2", tls=authority.server) as server:
        script = server.script(ok)
        with open_judge(mode, rc.Endpoint(server.base_url, "judge", ca_file=str(authority.file))) as judge:
            (verdict,) = judge.judge(script.samples(1))
    assert verdict.status == "failed"
    assert str(verdict.error).startswith("TlsFailed: ")
    assert script.requests == 0


@pytest.mark.parametrize("content", [None, "", "no certificate at all\n"], ids=["missing", "empty", "a text"])
def test_a_ca_file_without_a_certificate_is_an_error_up_front(
    mode: str, content: str | None, open_judge: Opener, tls_server: HostileServer, tmp_path: Path
) -> None:
    path = tmp_path / "private.pem"
    if content is not None:
        path.write_text(content)

    def use() -> None:
        open_judge(mode, rc.Endpoint(tls_server.base_url, "judge", ca_file=str(path))).close()

    with pytest.raises(rc.ConfigurationError, match="ca_file"):
        use()


# The server's name.


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


def hosts(heads: list[str]) -> list[str]:
    """Every Host header of every request, so that one that comes twice shows."""
    lines = [line for head in heads for line in head.split("\r\n")]
    return [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_host_header_is_the_address_and_the_port_once(mode: str, host: str, open_judge: Opener) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no ::1")
    with HostileServer(host.strip("[]")) as server:
        script = server.script(ok)
        with open_judge(mode, rc.Endpoint(f"http://{host}:{server.port}/v1", "judge")) as judge:
            assert [verdict.status for verdict in judge.judge(script.samples(2))] == ["ok", "ok"]
        assert hosts(script.heads) == [f"{host}:{server.port}"] * 2


@pytest.mark.parametrize("mode", IN_PROCESS_MODES)
@pytest.mark.parametrize(
    ("host", "sent"), [("m\u00fcnchen.test", "xn--mnchen-3ya.test"), ("judge.test", "judge.test")], ids=["IDN", "ASCII"]
)
def test_the_host_header_is_the_name_as_dns_knows_it(mode: str, host: str, sent: str, server: HostileServer) -> None:
    script = server.script(ok)
    run = judge_where([host, sent], ["127.0.0.1"], MODES[mode], f"http://{host}:{server.port}/v1", script.marker)
    assert run.statuses == ["ok", "ok"], run
    assert hosts(script.heads) == [f"{sent}:{server.port}"] * 2


@pytest.mark.parametrize(
    "url",
    ["http://ada:{}@127.0.0.1:8000/v1", "https://ada:{}@judge.test/v1", "http://:{}@[::1]:8000/v1", "http://{}@h/v1"],
)
def test_a_password_in_base_url_is_an_error_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(rc.ConfigurationError, match="base_url") as caught:
        rc.Endpoint(url.format("correct-horse"), "judge")
    error: BaseException | None = caught.value
    while error is not None:
        assert "correct-horse" not in repr(error)
        error = error.__cause__ or error.__context__
