"""Every wrong argument is named, and no secret is ever shown."""

import dataclasses
import pathlib
import pickle
import traceback

import pytest

from rewardcore import ConfigurationError, Endpoint
from rewardcore.http.endpoint import read_extra_body
from rewardcore.http.mask import Secret

URL = "http://127.0.0.1:8000/v1"
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (URL, URL),
        (URL + "/", URL),
        (f"  {URL}\n", URL),
        ("HTTPS://api.example.com/v1", "https://api.example.com/v1"),
        ("https://example.com/openai/deployments/x", "https://example.com/openai/deployments/x"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_a_base_url_is_kept_without_its_last_slash(given, kept):
    endpoint = Endpoint(given, "judge")
    assert endpoint.base_url == kept
    assert endpoint.url == kept + "/chat/completions"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (URL, "127.0.0.1:8000"),
        ("http://example.com/v1", "example.com:80"),
        ("https://example.com/v1", "example.com:443"),
    ],
)
def test_the_host_names_its_port(url, host):
    assert Endpoint(url, "judge").host == host


WRONG = [
    ({"base_url": "http://127.0.0.1:8000"}, "base_url", "http://127.0.0.1:8000/v1"),
    ({"base_url": "http://127.0.0.1:8000/"}, "base_url", "want http://127.0.0.1:8000/v1"),
    ({"base_url": URL + "/chat/completions"}, "base_url", "end before /chat/completions"),
    ({"base_url": URL + "/chat/completions/"}, "base_url", "end before /chat/completions"),
    ({"base_url": "ftp://example.com/v1"}, "base_url", "http:// or https://"),
    ({"base_url": "127.0.0.1:8000/v1"}, "base_url", "http:// or https://"),
    ({"base_url": "localhost/v1"}, "base_url", "http:// or https://"),
    ({"base_url": "file:///etc/passwd"}, "base_url", "http:// or https://"),
    ({"base_url": "unix:///run/judge.sock"}, "base_url", "http:// or https://"),
    ({"base_url": ""}, "base_url", "http:// or https://"),
    ({"base_url": "http:///v1"}, "base_url", "names no host"),
    ({"base_url": "http://:8000/v1"}, "base_url", "names no host"),
    ({"base_url": "http://host:0/v1"}, "base_url", "names no host and port"),
    ({"base_url": "http://host:99999/v1"}, "base_url", "not a URL"),
    ({"base_url": "http://host:port/v1"}, "base_url", "not a URL"),
    ({"base_url": "http://[::1/v1"}, "base_url", "not a URL"),
    ({"base_url": URL + "?api-version=1"}, "base_url", "parameters go into"),
    ({"base_url": URL + "#here"}, "base_url", "parameters go into"),
    ({"base_url": None}, "base_url", "must be a text"),
    ({"base_url": b"http://host/v1"}, "base_url", "must be a text"),
    ({"model": ""}, "model", "/models lists them"),
    ({"model": "  "}, "model", "/models lists them"),
    ({"model": None}, "model", "/models lists them"),
    ({"base_url": pathlib.Path("v1")}, "base_url", "not PosixPath"),
    ({"base_url": "http://two words/v1"}, "base_url", "write it without them"),
    ({"base_url": "http://host\n/v1"}, "base_url", "write it without them"),
    ({"api_key_env": 7}, "api_key_env", "name of a variable"),
    ({"temperature": -0.1}, "temperature", "from 0 to 2"),
    ({"temperature": 2.1}, "temperature", "from 0 to 2"),
    ({"temperature": float("nan")}, "temperature", "from 0 to 2"),
    ({"temperature": float("inf")}, "temperature", "from 0 to 2"),
    ({"temperature": "0.5"}, "temperature", "a number"),
    ({"temperature": True}, "temperature", "a number"),
    ({"max_tokens": 0}, "max_tokens", "above 0"),
    ({"max_tokens": -5}, "max_tokens", "above 0"),
    ({"max_tokens": 1.5}, "max_tokens", "whole number"),
    ({"max_tokens": True}, "max_tokens", "whole number"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "above 0"),
    ({"max_completion_tokens": "many"}, "max_completion_tokens", "whole number"),
    ({"max_completion_tokens": 9, "max_tokens": 9}, "max_completion_tokens", "give one of them"),
    ({"identity": ""}, "identity", "a name such as"),
    ({"identity": 7}, "identity", "a name such as"),
    ({"extra_body": {"n": 3}}, "extra_body", "'n': for several draws, give samples different `draw`"),
    ({"extra_body": {"model": "x"}}, "extra_body", "'model'"),
    ({"extra_body": {"messages": []}}, "extra_body", "'messages'"),
    ({"extra_body": {"stream": True}}, "extra_body", "'stream'"),
    ({"extra_body": [("a", 1)]}, "extra_body", "a mapping"),
    ({"extra_body": 7}, "extra_body", "a mapping"),
    ({"ca_file": 7}, "ca_file", "path of a file of PEM certificates"),
    ({"ca_file": True}, "ca_file", "path of a file of PEM certificates"),
    ({"headers": [("X-Key", "v")]}, "headers", "a mapping such as"),
    ({"headers": "X-Key: v"}, "headers", "a mapping such as"),
    ({"headers": {"X-Key": "two\nlines"}}, "headers", "'X-Key'"),
    ({"headers": {"X-Key": "two\r\nInjected: lines"}}, "headers", "'X-Key'"),
    ({"headers": {"X-Key": "nul\0"}}, "headers", "'X-Key'"),
    ({"headers": {"X-Key": "geheim-é"}}, "headers", "'X-Key'"),
    ({"headers": {"X-Key": 7}}, "headers", "'X-Key'"),
    ({"headers": {"X-Key": None}}, "headers", "'X-Key'"),
    ({"headers": {"X Key": "v"}}, "headers", "'X Key'"),
    ({"headers": {"X-Key\r\nInjected": "v"}}, "headers", "name of a header"),
    ({"headers": {"": "v"}}, "headers", "name of a header"),
    ({"headers": {7: "v"}}, "headers", "name of a header"),
]


@pytest.mark.parametrize(
    ("text", "body"), [("", None), (" ", None), ("{}", None), ('{"min_p": 0.1}', {"min_p": 0.1})], ids=repr
)
def test_an_extra_body_on_a_command_line_is_a_json_object(text, body):
    assert read_extra_body(text) == body


@pytest.mark.parametrize("text", ["{", "[1]", "7", "null", "min_p=0.1", '{"min_p": NaN}', "{'min_p': 0.1}"])
def test_an_extra_body_that_is_no_json_object_is_named_by_its_flag(text):
    with pytest.raises(ConfigurationError, match="--extra-body must be a JSON object"):
        read_extra_body(text)


@pytest.mark.parametrize(("options", "field", "advice"), WRONG, ids=lambda part: str(part)[:50])
def test_a_wrong_argument_is_named_with_what_to_do(options, field, advice):
    with pytest.raises(ConfigurationError) as caught:
        Endpoint(**{"base_url": URL, "model": "judge", **options})
    assert field in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host:8000/v1",
        "http://hunter2@host/v1",
        "https://user:hunter2@host",
        "ftp://user:hunter2@host/v1",
        "user:hunter2@host/v1",
        "my_user:hunter2@host/v1",
        "http://user:hunter2/x@host/v1",
        "http://user:hunter2#x@host/v1",
        "http://user:hunter2?x@host/v1",
        "http://user:8000/hunter2@host/v1",
        "http://user:hunter2@host:port/v1",
        "http://user:hunter2@[::1/v1",
    ],
)
def test_user_info_is_refused_without_showing_the_password(url):
    with pytest.raises(ConfigurationError) as caught:
        Endpoint(url, "judge")
    assert "user info" in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_key_in_the_parameters_is_refused_without_showing_it():
    for url in (f"http://host/v1?key={KEY}", f"host/v1?key={KEY}", f"http:///v1#{KEY}"):
        with pytest.raises(ConfigurationError) as caught:
            Endpoint(url, "judge")
        assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "key", [KEY, "gsk_0aB1cD2eF3gH4iJ5kL6mN7oP8", "hf_abcdefghijklmnopqrst0", "d41d8cd98f00b204e9800998ecf8427e"]
)
def test_a_key_in_place_of_its_variables_name_is_refused_without_showing_it(key):
    with pytest.raises(ConfigurationError, match="api_key_env") as caught:
        Endpoint(URL, "judge", api_key_env=key)
    assert key not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "key", "_", "JUDGE2KEY", "aVeryLongNameWithoutDigits", "K" * 40])
def test_what_may_be_a_name_is_taken_for_one(name, monkeypatch):
    monkeypatch.delenv(name, raising=False)  # a shell sets `_` for what it starts
    assert Endpoint(URL, "judge", api_key_env=name).api_key() is None


def test_a_name_that_looks_like_a_key_is_one_if_it_is_set(monkeypatch):
    name = "thisIsReally1VariableOfMine"
    monkeypatch.setenv(name, KEY)
    assert Endpoint(URL, "judge", api_key_env=name).api_key() == KEY


def test_a_header_that_is_refused_is_not_shown():
    with pytest.raises(ConfigurationError) as caught:
        Endpoint(URL, "judge", headers={"X-Key": KEY + "\n"})
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_no_repr_or_copy_shows_a_key_or_a_header(key):
    endpoint = Endpoint(URL, "judge", headers={"X-Key": "header-secret"})
    views = [endpoint, vars(endpoint), endpoint.headers, endpoint.request_headers(), endpoint.api_key()]
    views += [dataclasses.asdict(endpoint), dataclasses.replace(endpoint, model="other"), [endpoint.api_key()]]
    views += [pickle.loads(pickle.dumps(endpoint)), vars(pickle.loads(pickle.dumps(endpoint)))]
    for view in views:
        assert key not in repr(view)
        assert "header-secret" not in repr(view)
    assert "header-secret" not in str(endpoint) + f"{endpoint}" + f"{endpoint.request_headers()}"


def test_a_pickle_carries_no_key(key):
    assert key.encode() not in pickle.dumps(Endpoint(URL, "judge"))


def test_headers_survive_the_way_to_another_process():
    endpoint = Endpoint(URL, "judge", headers={"X-Key": "header-secret"})
    copy = pickle.loads(pickle.dumps(endpoint))
    assert copy == endpoint
    assert copy.request_headers()["X-Key"] == "header-secret"


@pytest.mark.usefixtures("key")
def test_a_traceback_with_local_variables_shows_no_secret():
    endpoint = Endpoint(URL, "judge", headers={"X-Key": "header-secret"})

    def send():
        headers, secret = endpoint.request_headers(), endpoint.api_key()
        raise RuntimeError(f"not sent: {headers.keys()}, {len(secret)}")

    with pytest.raises(RuntimeError) as caught:
        send()
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "headers = " in shown
    assert KEY not in shown
    assert "header-secret" not in shown.replace('headers={"X-Key": "header-secret"}', "")  # this very file's line


def test_a_secret_is_the_text_it_hides():
    assert (Secret("abc"), repr(Secret("abc"))) == ("abc", "'***'")
    assert type(pickle.loads(pickle.dumps(Secret("abc")))) is Secret


def test_the_key_is_read_from_the_variable_when_it_is_asked_for(monkeypatch):
    endpoint = Endpoint(URL, "judge", api_key_env="MY_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.delenv("MY_KEY", raising=False)
    assert endpoint.api_key() is None
    assert "Authorization" not in endpoint.request_headers()
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    assert endpoint.request_headers()["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("name", [None, ""])
def test_an_endpoint_may_need_no_key(key, name):
    assert "Authorization" not in Endpoint(URL, "judge", api_key_env=name).request_headers()


@pytest.mark.parametrize("value", ["sk-ключ", "sk-two\nlines", "sk-\x01"])
def test_a_key_that_no_header_can_carry_names_its_variable_and_stays_hidden(monkeypatch, value):
    monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        Endpoint(URL, "judge").api_key()
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_a_header_of_the_users_own_takes_the_place_of_ours(key, name):
    headers = Endpoint(URL, "judge", headers={name: "Basic abc"}).request_headers()
    assert [value for header, value in headers.items() if header.lower() == "authorization"] == ["Basic abc"]


def test_a_change_to_the_callers_headers_does_not_reach_the_endpoint():
    headers = {"X-Key": "one"}
    endpoint = Endpoint(URL, "judge", headers=headers)
    headers["X-Key"] = "two"
    assert endpoint.request_headers()["X-Key"] == "one"


def test_the_body_holds_every_sampling_parameter():
    endpoint = Endpoint(URL, "judge", temperature=1, max_tokens=7, extra_body={"top_p": 0.5, "max_tokens": 9})
    assert endpoint.parameters() == {"model": "judge", "temperature": 1.0, "max_tokens": 9, "top_p": 0.5}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"temperature": 0.0, "max_tokens": 1024}),
        ({"temperature": None}, {"max_tokens": 1024}),
        ({"max_tokens": None}, {"temperature": 0.0}),
        ({"max_completion_tokens": 4096}, {"temperature": 0.0, "max_completion_tokens": 4096}),
        ({"max_completion_tokens": 4096, "max_tokens": None, "temperature": None}, {"max_completion_tokens": 4096}),
    ],
)
def test_none_leaves_a_parameter_out_and_a_new_name_takes_the_olds_place(given, sent):
    assert Endpoint(URL, "judge", **given).parameters() == {"model": "judge", **sent}
