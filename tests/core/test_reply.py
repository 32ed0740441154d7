"""From an answer's bytes to a reply or a typed failure that names what was wrong."""

import contextlib
import gzip
import json
import tracemalloc
import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore import Endpoint, Failure
from rewardcore.failures import BrokenReply, QuotaExhausted, ReplyTooLarge, UnexpectedReply
from rewardcore.http.reading import MAX_BODY_BYTES, Body, ReplyReader
from rewardcore.reply import Quota

KEY = "sk-very-secret-0123456789"
ENDPOINT = Endpoint("http://judge.example:8000/v1", "judge", max_tokens=77)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def read(body, status=200, headers=None, endpoint=ENDPOINT):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return ReplyReader(endpoint).read(status, headers or {}, body)


def failure(*arguments, **options):
    with pytest.raises(Failure) as caught:
        read(*arguments, **options)
    return caught.value


def completion(content="fine", finish_reason="stop", index=0, **message):
    return {"choices": [choice(content, finish_reason, index, **message)]}


def choice(content="fine", finish_reason="stop", index=0, **message):
    return {"index": index, "finish_reason": finish_reason, "message": {"content": content, **message}}


QUOTA = {
    "x-ratelimit-limit-requests": "109",
    "x-ratelimit-remaining-requests": "9",
    "x-ratelimit-reset-requests": "10s",
}


def test_a_completion_is_a_reply():
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    reply = read({**completion("<score>7</score>"), "usage": usage}, headers=QUOTA)
    assert (reply.text, reply.usage, reply.quota) == ("<score>7</score>", usage, Quota(109, 9, 10.0))


@pytest.mark.parametrize(
    "document",
    [
        {"choices": [{"message": {"content": "fine"}}]},
        completion(finish_reason=None),
        completion(refusal=None, reasoning_content="long thoughts", tool_calls=[]),
        completion(refusal=""),
        {**completion(), "error": None},
        {**completion(), "usage": None},
        {**completion(), "usage": "many"},
    ],
)
def test_what_a_server_may_leave_out_or_add_changes_nothing(document):
    assert read(document).text == "fine"


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b"<!DOCTYPE html><html>Welcome</html>", "UnexpectedReply", "HTML"),
        (b"\n\n  <html></html>", "UnexpectedReply", "base_url"),
        ({"error": {"message": "model overloaded"}}, "UnexpectedReply", "model overloaded"),
        ({"error": "just text"}, "UnexpectedReply", "just text"),
        ({"error": None}, "UnexpectedReply", "an error"),
        ({"error": {"a": 1}, "choices": None}, "UnexpectedReply", "an error"),
        ({}, "UnexpectedReply", "no choices"),
        ({"choices": None}, "UnexpectedReply", "no choices"),
        ({"choices": {}}, "UnexpectedReply", "no choices"),
        ({"choices": []}, "UnexpectedReply", "0 choices where one was asked for"),
        ({"choices": [choice(), choice(index=1)]}, "UnexpectedReply", "2 choices"),
        ({"choices": [None]}, "UnexpectedReply", "index 0"),
        ({"choices": [choice(index=1)]}, "UnexpectedReply", "index 0"),
        ({"choices": [choice(index="0")]}, "UnexpectedReply", "index 0"),
        ({"choices": [{}]}, "UnexpectedReply", "no message"),
        ({"choices": [{"message": None}]}, "UnexpectedReply", "no message"),
        ({"choices": [{"message": "fine"}]}, "UnexpectedReply", "no message"),
        ({"choices": [{"text": "completions API"}]}, "UnexpectedReply", "no message"),
        (completion(None), "UnexpectedReply", "content is null"),
        ({"choices": [{"message": {}}]}, "UnexpectedReply", "content is null"),
        (completion(7), "UnexpectedReply", "content is int"),
        (completion([{"type": "text", "text": "x"}]), "UnexpectedReply", "content is list"),
        ([], "UnexpectedReply", "a JSON list"),
        (None, "UnexpectedReply", "a JSON NoneType"),
        ("text", "UnexpectedReply", "a JSON str"),
        (7, "UnexpectedReply", "a JSON int"),
        (b"", "BrokenReply", "empty"),
        (b" \n", "BrokenReply", "empty"),
        (b'{"choices": [{"mess', "BrokenReply", "not valid JSON"),
        (b"data: {}\n\n", "BrokenReply", "data: {}"),
        (b'{"choices": []} trailing', "BrokenReply", "not valid JSON"),
        (json.dumps(completion("fine")).encode().replace(b"fine", b"\xff\xfe"), "BrokenReply", "UTF-8|utf-8"),
        (json.dumps(completion("fine")).encode().replace(b"fine", rb"\ud800"), "BrokenReply", "not valid JSON"),
        (b"\xef\xbb\xbf" + json.dumps(completion()).encode(), "BrokenReply", "not valid JSON"),
        (json.dumps(completion()).encode("utf-16"), "BrokenReply", "not valid JSON"),
        (b'{"choices": NaN}', "BrokenReply", "not valid JSON"),
        (b'{"choices": [], "x": Infinity}', "BrokenReply", "not valid JSON"),
        (b'{"choices": [], "x": -Infinity}', "BrokenReply", "not valid JSON"),
        (b"[" * 100_000, "BrokenReply", "not valid JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "BrokenReply", "not valid JSON"),
        (b'{"choices":[],"choices":[]}', "BrokenReply", "same key twice"),
        (b'{"choices":[{"message":{"content":"1","content":"10"}}]}', "BrokenReply", "same key twice"),
        (b'{"choices":[{"message":{},"message":{"content":"10"}}]}', "BrokenReply", "same key twice"),
        (b'{"choices":[{"message":{"content":"1","refusal":"no","refusal":null}}]}', "BrokenReply", "same key twice"),
        (
            b'{"choices":[{"finish_reason":"length","finish_reason":"stop","message":{"content":"1"}}]}',
            "BrokenReply",
            "same key twice",
        ),
        (completion("", reasoning="thoughts"), "Unparsed", "empty text"),
        (completion(""), "Unparsed", "empty text"),
        (completion(None, reasoning_content="thoughts <score>9</score>"), "Unparsed", "reasoning only"),
        (completion(None, reasoning="thoughts <score>9</score>"), "Unparsed", "reasoning only"),
        (completion("<score>9</score>", "length"), "Truncated", "77 tokens; raise max_tokens"),
        (completion(None, "length", reasoning="thoughts"), "Truncated", "max_tokens"),
        (completion("<score>9</score>", "content_filter"), "Refused", "content_filter"),
        (completion(None, refusal="I cannot help"), "Refused", "I cannot help"),
        (completion("<score>9</score>", refusal="I cannot help"), "Refused", "I cannot help"),
    ],
    ids=lambda part: str(part)[:60],
)
def test_an_answer_that_is_no_reply_is_a_typed_failure_that_names_what_was_wrong(body, kind, says):
    found = failure(body)
    assert found.kind == kind
    assert any(part in str(found) for part in says.split("|"))
    assert len(str(found)) < 500


def test_the_same_words_twice_are_no_duplicate_key():
    text = '"content" "content" "choices" "message" <score>7</score>'
    assert read(completion(text)).text == text
    document = completion("fine")
    document["choices"][0]["logprobs"] = {"content": [], "refusal": None}
    document["choices"][0]["message"]["refusal"] = None
    assert read(document).text == "fine"


CONTEXT = "by the model's context"


@pytest.mark.parametrize(
    ("limits", "usage", "says"),
    [
        ({"max_tokens": 77}, {"completion_tokens": 77}, "at 77 tokens; raise max_tokens"),
        ({"max_tokens": 77}, None, "at 77 tokens; raise max_tokens"),
        ({"max_tokens": 77}, {"completion_tokens": 12, "total_tokens": 512}, f"at 12 tokens {CONTEXT}, 512 tokens"),
        ({"max_completion_tokens": 9}, {"completion_tokens": 9}, "at 9 tokens; raise max_completion_tokens"),
        ({"extra_body": {"max_tokens": 5}}, {"completion_tokens": 5}, "at 5 tokens; raise max_tokens"),
        ({"max_tokens": None}, {"completion_tokens": 500, "total_tokens": 512}, f"at 500 tokens {CONTEXT}, 512 tokens"),
        ({"max_tokens": None}, None, f"short {CONTEXT}; shorten"),
    ],
)
def test_a_truncation_names_what_really_cut_the_reply(limits, usage, says):
    endpoint = Endpoint("http://judge.example:8000/v1", "judge", **limits)
    assert says in str(failure({**completion("half a th", "length"), "usage": usage}, endpoint=endpoint))


@pytest.mark.parametrize("kind", ["length", "content_filter"])
def test_a_failure_keeps_what_the_judge_did_say_and_cost(kind):
    found = failure({**completion("half a th", kind), "usage": {"completion_tokens": 77}})
    assert (found.reply.text, found.reply.usage) == ("half a th", {"completion_tokens": 77})


def test_usage_holds_whole_sensible_counts_alone():
    usage = {"prompt_tokens": 5, "completion_tokens": -3, "a": 1.5, "b": "7", "c": None, "d": {"x": 1}, "e": True}
    assert read({**completion(), "usage": {**usage, "f": 10**30}}).usage == {"prompt_tokens": 5}
    slow_path = json.dumps({**completion('"content"'), "usage": {"f": 10**30, "g": 1}, "x": {"content": 1}}).encode()
    assert read(slow_path).usage == {"g": 1}


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: str(v).encode()))
def test_any_bytes_are_a_reply_or_a_failure_and_nothing_else(body):
    for status in (200, 400, 401, 429, 500):
        with pytest.raises(Failure):
            read(body, status)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "error", "code", "refusal", "index", "finish_reason", "usage"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(json_values, json_values, json_values)
def test_any_document_is_a_reply_or_a_failure_and_nothing_else(top, inside, message):
    documents = [top, {"choices": [inside]}, {"choices": [{"message": message}], "usage": top}, {"error": inside}]
    for document in documents:
        for status in (200, 429):
            with contextlib.suppress(Failure):
                assert isinstance(read(orjson.dumps(document), status).text, str)


@pytest.mark.parametrize("depth", [100, 300, 900, 1000, 1020])
@pytest.mark.parametrize(
    "where", ['{"error": %s}', '{"choices":[{"message":{"refusal":%s}}]}', '{"content":1,"x":{"content":%s}}']
)
def test_deep_nesting_anywhere_is_a_typed_failure(depth, where):
    failure((where % ("[" * depth + "]" * depth)).encode())
    failure((where % ("[" * depth + "]" * depth)).encode(), status=429)


STATUSES = {
    300: "WrongPath", 301: "WrongPath", 302: "WrongPath", 307: "WrongPath", 308: "WrongPath",
    400: "Rejected", 401: "Denied", 403: "Forbidden", 404: "WrongPath", 405: "WrongPath", 413: "Rejected",
    422: "Rejected", 451: "Rejected",
    408: "Transient", 409: "Transient", 425: "Transient", 429: "RateLimited",
    500: "Transient", 501: "Transient", 502: "Transient", 503: "Overloaded", 504: "Transient", 529: "Overloaded",
    201: "Rejected", 204: "Rejected", 206: "Rejected",
}  # fmt: skip


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_every_status_has_its_kind(status, kind):
    found = failure({"error": {"message": "the server's own words"}}, status)
    assert found.kind == kind
    assert f"judge.example:8000 answered {status}" in str(found)
    assert "own words" in str(found) or 300 <= status < 400


@pytest.mark.parametrize(("status", "says"), [(500, True), (502, True), (504, True), (408, False), (503, False)])
def test_what_is_the_servers_own_error_is_called_so_and_where_to_look_is_told(status, says):
    assert (", an error of the server's own (see its log): " in str(failure({}, status))) is says


def test_a_status_without_a_body_says_so():
    assert "nothing more" in str(failure(b"", 500))


@pytest.mark.parametrize("status", [400, 403, 429, 500])
@pytest.mark.parametrize("error", [{"code": "insufficient_quota"}, {"type": "insufficient_quota", "code": None}])
def test_a_used_up_quota_is_final_whatever_its_status(status, error):
    assert type(failure({"error": error}, status)) is QuotaExhausted


@pytest.mark.parametrize(
    "body",
    [
        {"error": "insufficient_quota"},
        {"error": {"message": "not insufficient_quota, only busy"}},
        ["insufficient_quota"],
        b"insufficient_quota",
        b'"insufficient_quota"',
    ],
)
def test_a_mere_mention_of_the_quota_is_not_the_quota(body):
    assert failure(body, 429).kind == "RateLimited"


def test_retry_after_is_kept_where_a_retry_makes_sense():
    assert failure(b"", 429, {"retry-after": "7"}).retry_after == 7.0
    assert failure(b"", 503, {"retry-after-ms": "1500"}).retry_after == 1.5
    assert failure(b"", 400, {"retry-after": "7"}).retry_after is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_request_names_the_variable_to_set_or_check(monkeypatch, status):
    assert "check the key in OPENAI_API_KEY" in str(failure(b"", status))
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "set OPENAI_API_KEY" in str(failure(b"", status))
    keyless = Endpoint("http://judge.example:8000/v1", "judge", api_key_env=None)
    assert "api_key_env" in str(failure(b"", status, endpoint=keyless))


def test_not_found_names_the_model_and_the_url():
    found = str(failure(b"", 404))
    assert "'judge'" in found
    assert "http://judge.example:8000/v1/chat/completions" in found


def test_a_redirect_is_not_followed_and_its_target_is_not_repeated():
    found = failure(b"go to evil.example", 302, {"location": "http://evil.example/"})
    assert "evil" not in str(found)
    assert "base_url" in str(found)


HEADERS = {"Authorization": "Bearer header-secret-abc", "X-Long": "header-secret-abc-and-more", "X-Short": "short"}


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
@pytest.mark.parametrize(
    "echo",
    [
        f"wrong key {KEY}!",
        f"Authorization: Bearer {KEY}",
        f"<html>{KEY}</html>",
        json.dumps({"error": {"message": f"wrong key {KEY}", "code": "header-secret-abc"}}),
        json.dumps({"choices": [{"message": {"content": None, "refusal": f"not with {KEY}"}}]}),
        "you sent header-secret-abc-and-more",
        "you sent header-secret-abc",
        "x" * 190 + KEY,
        "x" * 295 + KEY,
        " " * 190 + KEY,
        " " * 1990 + KEY,
        "\n".join(["x", KEY] * 400),
    ],
    ids=lambda echo: echo[:30].strip() or "spaces",
)
def test_a_server_that_echoes_a_secret_does_not_get_it_into_an_error(status, echo):
    endpoint = Endpoint("http://judge.example:8000/v1", "judge", headers=HEADERS)
    found = endpoint.mask()(str(failure(echo.encode(), status, endpoint=endpoint)))
    for piece in (KEY[:8], KEY[3:], "header-secret", "and-more"):
        assert piece not in found


def test_a_reader_shows_no_secret_of_its_own():
    assert KEY not in repr(vars(ReplyReader(ENDPOINT)))


# The body: gathered up to the cap, decompressed as it arrives.


def gathered(data, encoding="", size=64 * 1024):
    body = Body(encoding)
    for start in range(0, len(data), size):
        body.feed(data[start : start + size])
    return body.finish()


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_a_body_comes_out_as_it_went_in_however_it_is_cut(data, size):
    assert gathered(data, "", size) == data
    assert gathered(gzip.compress(data), "gzip", size) == data
    assert gathered(zlib.compress(data), "deflate", size) == data


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " x-gzip "])
def test_the_encoding_is_read_whatever_its_case(encoding):
    assert gathered(gzip.compress(b"data"), encoding) == b"data"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br", "bzip2", "é"])
def test_an_encoding_nobody_asked_for_is_a_typed_failure(encoding):
    with pytest.raises(UnexpectedReply, match="identity was asked for"):
        Body(encoding)


def test_a_body_at_the_cap_is_whole_and_one_byte_more_is_cut():
    assert len(gathered(bytes(MAX_BODY_BYTES))) == MAX_BODY_BYTES
    assert len(gathered(gzip.compress(bytes(MAX_BODY_BYTES), 1), "gzip")) == MAX_BODY_BYTES
    for data, encoding in ((bytes(MAX_BODY_BYTES + 1), ""), (gzip.compress(bytes(MAX_BODY_BYTES + 1), 1), "gzip")):
        with pytest.raises(ReplyTooLarge, match="8 MiB"):
            gathered(data, encoding)


def peak_of(feed):
    tracemalloc.start()
    try:
        feed()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_cut_at_the_cap_in_bounded_memory():
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(200)) + packer.flush()

    def explode():
        with pytest.raises(ReplyTooLarge):
            gathered(bomb, "gzip", len(bomb))

    assert peak_of(explode) < 64 * 2**20


def test_an_endless_body_is_cut_at_the_cap_in_bounded_memory():
    def drown():
        body = Body()
        for _ in range(8):
            body.feed(bytes(2**20))
        with pytest.raises(ReplyTooLarge):
            body.feed(bytes(2**20))

    assert peak_of(drown) < 64 * 2**20


def test_what_follows_a_compressed_reply_is_not_gathered_for_ever():
    def drown():
        body = Body("gzip")
        body.feed(gzip.compress(b"{}"))
        for _ in range(200):
            with pytest.raises(BrokenReply, match="after its end"):
                body.feed(bytes(2**20))

    assert peak_of(drown) < 16 * 2**20


def test_a_body_in_tiny_pieces_costs_no_more_than_its_size():
    def trickle():
        body, piece = Body(), b"ab"
        for _ in range(100_000):
            body.feed(bytes(piece) + b"c")
        body.finish()

    assert peak_of(trickle) < 2 * 2**20


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"this is not gzip", "does not decompress"),
        (b"", "ended early"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-10], "ended early"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-8] + b"\0" * 8, "does not decompress"),
        (b"\x1f\x8b" + b"\xff" * 100, "does not decompress"),
    ],
)
def test_a_broken_gzip_is_a_broken_reply(data, says):
    with pytest.raises(BrokenReply, match=says):
        gathered(data, "gzip")
