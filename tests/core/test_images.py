"""What becomes of a row's image on its way into a request."""

import base64
import io
import warnings

import pytest
from PIL import Image

from rewardcore.images import data_url, located

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}


def encoded(kind, mode="RGB"):
    written = io.BytesIO()
    Image.new(mode, (4, 3), 1).save(written, kind)
    return written.getvalue()


def url_of(image, directory):
    return data_url(located(image, directory))


def content_of(url, kind="image/png"):
    head, _, content = url.partition(",")
    assert head == f"data:{kind};base64"
    return base64.b64decode(content)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "given", ["bytes", "a path", "a file URL", "undecoded bytes", "an undecoded path", "a data URL"]
)
def test_what_every_server_takes_is_sent_byte_for_byte(tmp_path, kind, given):
    content = encoded(kind)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one").write_bytes(content)  # the name says nothing: its bytes do
    image = {
        "bytes": content,
        "a path": "pictures/one",
        "a file URL": f"file://{tmp_path}/pictures/one",
        "undecoded bytes": {"bytes": content, "path": "elsewhere.bin"},
        "an undecoded path": {"bytes": None, "path": str(tmp_path / "pictures" / "one")},
        "a data URL": f"data:{KINDS[kind]};base64,{base64.b64encode(content).decode()}",
    }[given]
    assert content_of(url_of(image, tmp_path), KINDS[kind]) == content


@pytest.mark.parametrize(("kind", "mode"), [("BMP", "RGB"), ("TIFF", "CMYK"), ("PPM", "L"), ("TIFF", "F")])
def test_anything_else_becomes_a_png_of_the_same_pixels(tmp_path, kind, mode):
    content = content_of(url_of(encoded(kind, mode), tmp_path))
    shown = Image.open(io.BytesIO(content))
    assert (shown.format, shown.size) == ("PNG", (4, 3))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16", "CMYK", "YCbCr", "HSV", "F"])
def test_an_image_of_pillows_is_written_as_a_png(tmp_path, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Pillow's own, for some modes
        content = content_of(url_of(Image.new(mode, (4, 3)), tmp_path))
    assert Image.open(io.BytesIO(content)).size == (4, 3)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("missing.png", "and there is no such file"),
        ("https://example.org/a.png", "nothing is fetched: give the file"),
        (b"", "holds no bytes"),
        ({"bytes": None, "path": None}, 'holds neither "bytes" nor "path"'),
        ({}, 'holds neither "bytes" nor "path"'),
        (7, "is int, not a path, bytes or an image"),
        (None, "is NoneType, not"),
        (b"no image at all", "is no image that can be read"),
    ],
)
def test_what_is_no_image_says_so(tmp_path, image, says):
    with pytest.raises(ValueError, match=says):
        url_of(image, tmp_path)


def test_a_file_that_goes_away_is_told(tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(encoded("PNG"))
    image = located("one.png", tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        data_url(image)


def test_a_cut_image_that_must_be_encoded_anew_is_told(tmp_path):
    with pytest.raises(ValueError, match="cannot be written as a PNG"):
        url_of(encoded("BMP")[:-8], tmp_path)
