"""One key for one request: equal exactly when what is asked, of whom and how often, is equal."""

import hashlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore import ConfigurationError, Endpoint, Sample, Unparsed, rubrics
from rewardcore.failures import RubricFailed
from rewardcore.http.request import RequestBuilder

URL = "http://127.0.0.1:8000/v1"
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
extra_bodies = st.none() | st.dictionaries(text, values, max_size=4).filter(
    lambda body: not {"model", "messages", "stream", "n"} & set(body)
)


class Verbatim:
    """A rubric whose messages are what `verbatim` put into a sample."""

    def messages(self, sample):
        return sample.extra["messages"]

    def parse(self, text):
        raise Unparsed(text)


def verbatim(messages, draw=0):
    return Sample("", "", extra={"messages": messages}, draw=draw)


messages = st.lists(st.fixed_dictionaries({"role": text, "content": text | values}), min_size=1, max_size=3)
contents = st.fixed_dictionaries(
    {
        "base_url": st.sampled_from([URL, URL + "2", "https://127.0.0.1:8000/v1"]),
        "model": st.sampled_from(["judge", "judge2"]),
        "temperature": st.sampled_from([0, 0.0, 0.5, 1, 1.0]),
        "max_tokens": st.sampled_from([1, 16, 1024]),
        "extra_body": extra_bodies,
        "messages": messages,
        "draw": st.integers(0, 2),
    }
)


def build(content):
    content = dict(content)
    sample = verbatim(content.pop("messages"), content.pop("draw"))
    builder = RequestBuilder(Endpoint(**content), Verbatim())
    return builder, builder.build(sample)


def canonical(content):
    """An independent account of what a key stands for."""
    body = {"model": content["model"], "temperature": float(content["temperature"])}
    body |= {"max_tokens": content["max_tokens"], **(content["extra_body"] or {}), "messages": content["messages"]}
    return json.dumps([content["base_url"], content["draw"], body], sort_keys=True)


@given(contents, contents, st.data())
def test_keys_are_equal_exactly_when_the_content_is(one, other, data):
    if data.draw(st.booleans()):  # near misses: all but one field alike
        field = data.draw(st.sampled_from(sorted(one)))
        other = {**one, field: other[field]}
    assert (build(one)[1].key == build(other)[1].key) == (canonical(one) == canonical(other))


@given(contents)
def test_the_key_is_the_hash_of_the_material_that_can_be_shown(content):
    builder, request = build(content)
    material = builder.material(request)
    assert hashlib.sha256(material).digest() == request.key
    parsed = orjson.loads(material)
    assert parsed["base_url"] == content["base_url"]
    assert parsed["repeat"] == content["draw"]
    assert parsed["request"] == orjson.loads(request.body)
    assert material == orjson.dumps(parsed, option=orjson.OPT_SORT_KEYS)


@given(st.dictionaries(text, values, min_size=2, max_size=5), messages)
def test_the_order_of_keys_does_not_matter(table, messages):
    def reordered(value):
        if isinstance(value, dict):
            return {name: reordered(value[name]) for name in reversed(value)}
        return [reordered(item) for item in value] if isinstance(value, list) else value

    content = {"base_url": URL, "model": "judge", "draw": 0}
    one = build({**content, "extra_body": {"x": table}, "messages": messages})[1]
    other = build({**content, "extra_body": {"x": reordered(table)}, "messages": reordered(messages)})[1]
    assert one == other


def test_draws_share_their_bytes_and_not_their_key():
    builder = RequestBuilder(Endpoint(URL, "judge"), rubrics.QUALITY)
    draws = [builder.build(Sample("p", "r", draw=number)) for number in range(5)]
    assert draws[0] == builder.build(Sample("p", "r"))
    assert len({draw.body for draw in draws}) == 1
    assert len({draw.key for draw in draws}) == 5


def test_the_prompt_is_part_of_the_key_not_the_response_alone():
    builder = RequestBuilder(Endpoint(URL, "judge"), rubrics.QUALITY)
    assert builder.build(Sample("one", "same")).key != builder.build(Sample("two", "same")).key


def test_what_the_judge_is_not_shown_is_no_part_of_the_key():
    builder = RequestBuilder(Endpoint(URL, "judge"), rubrics.QUALITY)
    assert builder.build(Sample("p", "r", extra={"a": 1})) == builder.build(Sample("p", "r", extra={"a": 2}))


def test_neither_key_nor_headers_go_into_the_material(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-one")
    builder = RequestBuilder(Endpoint(URL, "judge", headers={"X-Key": "header-secret"}), rubrics.QUALITY)
    request = builder.build(Sample("p", "r"))
    assert b"secret" not in builder.material(request) + request.body
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-two")
    assert RequestBuilder(Endpoint(URL, "judge"), rubrics.QUALITY).build(Sample("p", "r")) == request


def test_equal_endpoints_have_equal_keys():
    """0 and 0.0 are one temperature."""
    one, other = Endpoint(URL + "/", "judge", temperature=0), Endpoint(URL, "judge", temperature=0.0)
    assert one == other
    requests = [RequestBuilder(endpoint, rubrics.QUALITY).build(Sample("p", "r")) for endpoint in (one, other)]
    assert requests[0] == requests[1]


def test_a_key_never_changes_between_versions():
    """If this fails, every cache in the world has just been emptied: raise the cache's version."""
    request = RequestBuilder(Endpoint(URL, "judge", extra_body={"seed": 1}), Verbatim()).build(
        verbatim([{"role": "user", "content": "é"}])
    )
    assert (
        request.body
        == (
            '{"max_tokens":1024,"messages":[{"content":"é","role":"user"}],"model":"judge","seed":1,"temperature":0.0}'
        ).encode()
    )
    assert (
        request.key
        == hashlib.sha256(
            b'{"base_url":"http://127.0.0.1:8000/v1","repeat":0,"request":' + request.body + b"}"
        ).digest()
    )


def test_an_identity_stands_in_the_key_in_place_of_the_base_url():
    def key(base_url, identity):
        return (
            RequestBuilder(Endpoint(base_url, "judge", identity=identity), rubrics.QUALITY).build(Sample("p", "r")).key
        )

    other = "http://node-7:9000/v1"
    assert key(URL, "judge-7b-v3") == key(other, "judge-7b-v3")
    assert len({key(URL, None), key(other, None), key(URL, "judge-7b-v3"), key(URL, "judge-7b-v4"), key(URL, URL)}) == 5


@pytest.mark.parametrize(
    "extra", [{"x": object()}, {"x": {1, 2}}, {"x": 2**64}, {"x": "\ud800"}, {1: "x"}, {"x": [float("nan")]}]
)
def test_an_extra_body_that_is_no_json_is_named_before_anything_is_sent(extra):
    with pytest.raises(ConfigurationError, match="extra_body"):
        RequestBuilder(Endpoint(URL, "judge", extra_body=extra), rubrics.QUALITY)


class Raising(Verbatim):
    def messages(self, sample):
        raise KeyError("missing column")


@pytest.mark.parametrize(
    ("rubric", "sample", "says"),
    [
        (Raising(), Sample("p", "r"), "KeyError: 'missing column'"),
        (Verbatim(), verbatim(object()), "object"),
        (Verbatim(), verbatim([{"content": "\ud800"}]), "surrogates"),
        (rubrics.QUALITY, Sample("p", "\ud800"), "surrogates"),
        (rubrics.QUALITY, {"prompt": "p"}, "AttributeError"),
    ],
)
def test_a_sample_that_cannot_be_written_fails_alone_and_says_why(rubric, sample, says):
    builder = RequestBuilder(Endpoint(URL, "judge"), rubric)
    with pytest.raises(RubricFailed, match=says):
        builder.build(sample)


def test_a_rubric_may_refuse_a_sample_with_a_failure_of_its_own():
    class Refusing(Verbatim):
        def messages(self, sample):
            raise Unparsed("nothing to judge")

    with pytest.raises(Unparsed, match="nothing to judge"):
        RequestBuilder(Endpoint(URL, "judge"), Refusing()).build(Sample("p", "r"))
