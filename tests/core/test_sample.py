"""What a sample may be made of: texts and conversations; anything else is named before a rubric sees it."""

import types

import numpy
import pytest

from rewardcore import ConfigurationError, Sample

PIXEL = "data:image/png;base64,iVBORw0KGgo="
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def user(content):
    return {"role": "user", "content": content}


def image(url=PIXEL):
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "a text",
        numpy.str_("a text"),
        [user("a text")],
        [{"role": "system", "content": ""}, user("a text"), {"role": "assistant", "content": "yes"}],
        [{"role": "Some_tool-2", "content": "4", "tool_call_id": "1"}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        [user([])],
        [user([{"type": "text", "text": "What is this?", "image_url": None}, image(), image("HTTPS://host/a.png")])],
        [types.MappingProxyType(user("a text"))],
    ],
)
def test_texts_and_conversations_are_taken_as_they_are(prompt):
    for sample in (Sample(prompt, "r"), Sample("p", prompt)):
        assert prompt in (sample.prompt, sample.response)


@pytest.mark.parametrize(
    "kind", [tuple, lambda items: numpy.array([*items, None], dtype=object)[:-1]], ids=["tuple", "array"]
)
def test_whatever_holds_messages_or_parts_in_order_becomes_a_list(kind):
    """Parquet gives arrays of objects, all the way down."""
    parts = [{"type": "text", "text": "What is this?"}, image()]
    asked = [user("Look."), user(kind(parts)), {"role": "assistant", "content": None, "tool_calls": kind([CALL])}]
    sample = Sample(kind(asked), kind([user("r")]))
    assert sample.prompt[:2] == [user("Look."), user(parts)]
    assert sample.response == [user("r")]
    assert sample == Sample(list(asked), [user("r")])


def test_a_mapping_of_any_kind_and_no_ground_truth_are_fine():
    sample = Sample("p", "r", None, "gsm8k", types.MappingProxyType({"index": 3}))
    assert sample.extra["index"] == 3


MESSAGES = "must be a text, or a list of messages"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, f"prompt {MESSAGES}"),
        (42, "not int 42"),
        (b"bytes", f"prompt {MESSAGES}"),
        (user("not in a list"), f"prompt {MESSAGES}"),
        (numpy.array(None, dtype=object), f"prompt {MESSAGES}"),
        ((turn for turn in [user("once")]), f"prompt {MESSAGES}"),
        ([], "prompt is a conversation without messages"),
        (["a text"], "prompt[0] must be a message such as {"),
        ([user("a"), None], "prompt[1] must be a message"),
        ([{"content": "a"}], "prompt[0].role must be a plain word such as user or assistant, not None"),
        ([{"role": "user]\n[system", "content": "a"}], "prompt[0].role must be a plain word"),
        ([{"role": 7, "content": "a"}], "prompt[0].role must be a plain word"),
        ([{"role": "user"}], "prompt[0].content must be a text or a list of parts"),
        ([user(None)], "None only beside an assistant's tool_calls"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "None only beside an assistant's tool_calls"),
        ([{"role": "user", "content": None, "tool_calls": [CALL]}], "None only beside an assistant's tool_calls"),
        ([{"role": "assistant", "content": None, "tool_calls": "x"}], "prompt[0].tool_calls must be a list"),
        ([{"role": "assistant", "content": "a", "tool_calls": 7}], "prompt[0].tool_calls must be a list, not int 7"),
        ([user("a"), user({"type": "text", "text": "a"})], "prompt[1].content must be a text or a list of parts"),
        ([user(5)], "prompt[0].content must be a text or a list of parts, not int 5"),
        ([user(["a"])], 'prompt[0].content[0] must be a part such as {"type": "text"'),
        ([user([{"text": "a"}])], "prompt[0].content[0] must be a part such as"),
        ([user([{"type": "text", "text": None}])], "prompt[0].content[0].text must be a text, not None"),
        ([user([image(), {"type": "image"}])], "prompt[0].content[1] is a placeholder, with no image in"),
        ([user([{"type": "image"}])], 'give {"type": "image_url", "image_url": {"url": …}} with an http'),
        ([user([{"type": "image", "image": object()}])], "prompt[0].content[0] holds an image, and a request carries"),
        ([user([{"type": "image", "bytes": b"png", "path": None}])], "rewardcore.rewards.images.sendable(prompt)"),
        ([user([{"type": "image", "url": PIXEL}])], 'or give {"type": "image_url", "image_url": {"url": …}} with'),
        ([user([{"type": "image_url", "image_url": PIXEL}])], "prompt[0].content[0] is an image without a URL"),
        ([user([image("file:///etc/passwd")])], "prompt[0].content[0] is an image without a URL"),
        ([user([image("data:")])], "prompt[0].content[0] is an image without a URL"),
        ([user([{"type": "input_audio"}])], "of type 'input_audio'; parts are of type text or image_url"),
    ],
)  # fmt: skip
def test_what_is_neither_text_nor_conversation_is_named_with_its_place(value, says):
    for place in ("prompt", "response"):
        with pytest.raises(ConfigurationError) as caught:
            Sample(**{"prompt": "p", "response": "r", place: value})
        assert says.replace("prompt", place) in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ground_truth": 42}, "ground_truth must be a text or None; for a number, give str(42), not int 42"),
        ({"ground_truth": ["42"]}, "ground_truth must be a text or None"),
        ({"data_source": None}, "data_source must be a text, not None"),
        ({"extra": [1]}, "extra must be a mapping or None, not list [1]"),
        ({"extra": "{}"}, "extra must be a mapping or None"),
        ({"draw": -1}, "draw must be a whole number of at least 0, not int -1"),
        ({"draw": "1"}, "draw must be a whole number of at least 0, not str '1'"),
        ({"draw": True}, "draw must be a whole number of at least 0, not bool True"),
    ],
)
def test_what_stands_beside_is_checked_too(fields, says):
    with pytest.raises(ConfigurationError) as caught:
        Sample("p", "r", **fields)
    assert says in str(caught.value)


def test_a_long_value_is_not_repeated_in_full():
    with pytest.raises(ConfigurationError) as caught:
        Sample("p", b"x" * 10_000)
    assert len(str(caught.value)) < 300
