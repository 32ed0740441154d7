"""Images as trainers put them into conversations: each goes to the judge as a URL, and nothing else is touched."""

import base64
import io

import numpy
import pytest
from PIL import Image

from rewardcore import ConfigurationError, Sample
from rewardcore.rewards.images import sendable
from rewardcore.rewards.samples import sample_of
from rewardcore.rubrics import QUALITY

RED = Image.new("RGB", (2, 2), "red")


def encoded(kind="PNG", image=RED):
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def asking(*parts):
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]


def url_in(conversation):
    (part,) = [part for part in sendable(conversation)[0]["content"] if part["type"] == "image_url"]
    return part["image_url"]["url"]


def decoded(url):
    kind, _, text = url.partition(";base64,")
    return kind.removeprefix("data:image/"), base64.b64decode(text)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK", "1", "F"])
def test_an_image_in_memory_is_sent_as_png_whatever_its_mode(mode):
    kind, sent = decoded(url_in(asking({"type": "image", "image": RED.convert(mode)})))
    assert (kind, Image.open(io.BytesIO(sent)).size) == ("png", (2, 2))
    assert url_in(asking({"type": "image", "image": RED})) == url_in(asking({"type": "image", "image": RED.copy()}))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_bytes_are_sent_as_they_are_before_what_was_decoded_from_them(kind, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(encoded(kind))
    parts = [
        {"type": "image", "bytes": encoded(kind), "image": RED},
        {"type": "image", "image": {"bytes": encoded(kind), "path": "elsewhere.png"}},
        {"type": "image", "image": encoded(kind)},
        {"type": "image", "image": str(path)},
        {"type": "image", "image": f"file://{path}"},
        {"type": "image", "bytes": None, "path": path},
    ]
    assert {decoded(url_in(asking(part))) for part in parts} == {(kind.lower(), encoded(kind))}


@pytest.mark.parametrize("name", ["image", "url"])
def test_a_url_stays_itself(name):
    assert url_in(asking({"type": "image", name: "https://example.org/a.png"})) == "https://example.org/a.png"


def test_what_a_sample_refuses_for_its_image_it_takes_when_it_is_sendable():
    prompt = asking({"type": "image", "image": RED})
    with pytest.raises(ConfigurationError, match=r"rewardcore\.rewards\.images\.sendable\(prompt\)"):
        Sample(prompt, "A red square.")
    assert Sample(sendable(prompt), "A red square.").prompt == sendable(prompt)


@pytest.mark.parametrize(
    "prompt",
    ["What is it?", asking(), asking({"type": "image"}), [{"role": "user", "content": 7}], 7, b"ab", numpy.array("a")],
)
def test_what_holds_no_image_is_left_as_it_is(prompt):
    assert sendable(prompt) is prompt


@pytest.mark.parametrize("listed", [list, tuple, numpy.array])
def test_messages_and_parts_may_come_as_arrays(listed):
    (message,) = asking({"type": "image", "image": RED})
    prompt = listed([{**message, "content": listed(message["content"])}])
    sample = sample_of(prompt, "A red square.", 7)
    assert sample.ground_truth == "7"
    content = QUALITY.messages(sample)[0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "text"]
    assert message["content"][0]["image"] is RED  # the trainer's own is not touched


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (7, "an image is int, not a path, bytes or an image: the judge cannot see it"),
        (b"BM", "an image is no image that can be read"),
        ("nowhere.png", r"an image is 'nowhere.png', and there is no such file"),
        ({"bytes": None, "path": None}, 'an image holds neither "bytes" nor "path"'),
    ],
)
def test_what_cannot_be_sent_is_named(image, says):
    with pytest.raises(ConfigurationError, match=says):
        sendable(asking({"type": "image", "image": image}))
