"""ImageReader and its deserializers: maps, decoding, each transform, random ones by epoch."""

from __future__ import annotations

import base64
import io
import zipfile

import numpy as np
import pytest

from htk_files import epoch
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.image.reader import read_map
from opscope.cntk.readers.image.transforms import read_opencv, resize, transform_of
from opscope.framework.base.errors import FormatError, ShapeError

Image = pytest.importorskip("PIL.Image")
RANDOM = np.random.default_rng(0)


def picture(number, height=4, width=6):
    """Pixels red, green, blue: (number, row, column)."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = number
    pixels[..., 1] = np.arange(height)[:, None]
    pixels[..., 2] = np.arange(width)
    return pixels


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pictures(folder, count=3, **size):
    lines = []
    for number in range(count):
        (folder / f"{number}.png").write_bytes(png(picture(number, **size)))
        lines.append(f".../{number}.png\t{number % 2}\n")
    (folder / "map.txt").write_text("".join(lines))


def section(folder, more="", features="", labels="labelDim = 2"):
    return ConfigParameters(
        f"""readerType = "ImageReader" ; file = "{folder}/map.txt" ; {more}
        features = [ width = 6 ; height = 4 ; channels = 3 ; {features} ]
        labels = [ {labels} ]"""
    )


def apply(kind, text, image, number=0):
    return transform_of(ConfigParameters(text), kind)(image, number, np.random.default_rng(number))


def test_pixels_and_classes(tmp_path):
    pictures(tmp_path)
    with create_reader(section(tmp_path, "randomize = none")) as reader:
        batches = epoch(reader, 2)
        assert reader.streams[0].shape == (6, 4, 3)
    assert [batch.samples for batch in batches] == [2, 1]
    blue, green, red = batches[0].streams["features"].values[1].reshape(3, 4, 6)
    assert (red == 1).all() and green[:, 0].tolist() == [0, 1, 2, 3]
    assert blue[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert batches[0].streams["labels"].dense(2).tolist() == [[1, 0], [0, 1]]


def test_channels_last_and_gray(tmp_path):
    pictures(tmp_path)
    with create_reader(section(tmp_path, "randomize = none", 'mbFormat = "nhwc"')) as reader:
        pixels = epoch(reader, 1)[1].streams["features"].values.reshape(4, 6, 3)
    assert pixels[2, 3].tolist() == [3, 2, 1]
    config = section(tmp_path, "randomize = none ; grayscale = true")
    with create_reader(config) as reader:
        assert reader.streams[0].dim == 24


def test_random_order_is_anew_in_each_epoch(tmp_path):
    pictures(tmp_path, 8)
    with create_reader(section(tmp_path)) as reader:
        orders = [
            [int(batch.streams["features"].values[0, -1]) for batch in epoch(reader, 1, number)]
            for number in range(2)
        ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(8)) and orders[0] != orders[1]


def test_random_crops_depend_on_epoch_and_seed_alone(tmp_path):
    pictures(tmp_path, 4, height=40, width=60)
    features = 'cropType = "randomside" ; sideRatio = 0.5:1 ; jitterType = "uniRatio"'

    def values(number, seed=0):
        more = f"{features} ; seed = {seed}"
        with create_reader(section(tmp_path, "randomize = none", more)) as reader:
            return epoch(reader, 4, number)[0].streams["features"].values

    np.testing.assert_array_equal(values(1), values(1))
    assert not np.array_equal(values(1), values(2))
    assert not np.array_equal(values(1), values(1, seed=3))


def test_images_in_archives_and_in_the_map(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/0.png", png(picture(7)))
    (tmp_path / "map.txt").write_text(f"{tmp_path}/a.zip@/in/0.png\t1\n")
    with create_reader(section(tmp_path)) as reader:
        assert epoch(reader, 1)[0].streams["features"].values[0, -1] == 7
    text = base64.b64encode(png(picture(9))).decode()
    (tmp_path / "map.txt").write_text(f"key\t1\t{text}\n")
    config = ConfigParameters(
        f"""randomize = false ; deserializers = ( [ type = "Base64ImageDeserializer"
        file = "{tmp_path}/map.txt" ; input = [
            features = [ transforms = ( [ type = "Scale" ; width = 3 ; height = 2 ; channels = 3 ] :
                                        [ type = "Transpose" ] ) ]
            labels = [ labelDim = 2 ] ] ] )"""
    )
    with create_reader(config) as reader:
        (batch,) = epoch(reader, 4)
        assert reader.streams[0].shape == (3, 2, 3)
    assert batch.streams["features"].values[0, -6:].tolist() == [9] * 6


def test_ten_views_of_each_image(tmp_path):
    pictures(tmp_path, 2, height=6, width=8)
    features = 'cropType = "multiview10" ; cropSize = 6:4'
    with create_reader(section(tmp_path, "randomize = none", features)) as reader:
        (batch,) = epoch(reader, 100)
    blue = batch.streams["features"].values.reshape(20, 3, 4, 6)[:, 0]
    green = batch.streams["features"].values.reshape(20, 3, 4, 6)[:, 1]
    assert blue[:10, 0, 0].tolist() == [0, 2, 0, 2, 1, 5, 7, 5, 7, 6]
    assert green[:5, 0, 0].tolist() == [0, 0, 2, 2, 1]
    assert batch.streams["labels"].indices.tolist() == [0] * 10 + [1] * 10


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("nearest", [0, 0, 100, 100]),
        ("linear", [0, 25, 75, 100]),
        ("cubic", [0, 23, 77, 111]),  # -10.55 is clipped
    ],
)
def test_sizes_as_opencv_makes_them(kernel, expected):
    image = np.array([[[0], [100]]], np.uint8)
    found = resize(image, 4, 1, kernel)[0, :, 0].astype(int)
    assert found.tolist() == expected


@pytest.mark.parametrize("kernel", ["nearest", "linear", "cubic", "lanczos"])
def test_resizing_keeps_what_is_even(kernel):
    image = np.full((5, 7, 3), 77, np.uint8)
    assert (resize(image, 9, 4, kernel) == 77).all()
    np.testing.assert_array_equal(resize(image, 7, 5, kernel), image)


def test_scale_modes():
    size = "width = 4 ; height = 4 ; channels = 3"
    image = picture(5, 8, 16)
    assert apply("Scale", f'{size} ; scaleMode = "crop"', image).shape == (4, 4, 3)
    padded = apply("Scale", f'{size} ; scaleMode = "pad" ; padValue = 9', image)
    assert padded.shape == (4, 4, 3) and (padded[0] == 9).all() and (padded[1:3] != 9).any()
    repeated = apply("Scale", f'{size} ; scaleMode = "pad"', image)
    np.testing.assert_array_equal(repeated[0], repeated[1])


def test_crops():
    image = picture(1, 8, 16)
    part = apply("Crop", "cropSize = 4:2", image)
    assert part.shape == (2, 4, 3) and part[0, 0].tolist() == [1, 3, 6]
    assert apply("Crop", "sideRatio = 0.5:0.5", image).shape == (4, 4, 3)
    area = apply("Crop", 'cropType = "randomarea" ; areaRatio = 0.5:0.5', image)
    assert area.shape == (8, 8, 3)
    mirrored = apply("Crop", "hflip = true", image, 1)
    assert mirrored.shape == image.shape


def test_colors_stay_in_range():
    image = RANDOM.integers(0, 256, (5, 6, 3)).astype(np.uint8)
    text = "brightnessRadius = 0.5 ; contrastRadius = 0.5 ; saturationRadius = 1"
    for number in range(5):
        changed = apply("Color", text, image, number)
        assert (
            changed.min() >= -0.001 and changed.max() <= 255.001 and not np.allclose(changed, image)
        )
    gray = np.full((2, 2, 3), 9, np.uint8)
    np.testing.assert_allclose(apply("Color", "saturationRadius = 0.7", gray), gray)


def xml(**parts):
    text = "<?xml version='1.0'?><opencv_storage>"
    for name, value in parts.items():
        if np.ndim(value):
            numbers = " ".join(str(v) for v in np.ravel(value))
            rows, columns = np.shape(value)
            value = f"<rows>{rows}</rows><cols>{columns}</cols><dt>f</dt><data>{numbers}</data>"
            text += f'<{name} type_id="opencv-matrix">{value}</{name}>'
        else:
            text += f"<{name}>{value}</{name}>"
    return text + "</opencv_storage>"


def test_mean_and_intensity(tmp_path):
    image = picture(5)
    mean = np.arange(72.0).reshape(1, 72)
    path = tmp_path / "mean.xml"
    path.write_text(xml(Channel=3, Row=4, Col=6, MeanImg=mean))
    found = apply("Mean", f'meanFile = "{path}"', image)
    np.testing.assert_allclose(found, image - mean.reshape(4, 6, 3))
    path.write_text(xml(EigVal=np.ones((1, 3)), EigVec=np.eye(3)))
    gray = np.full((2, 2, 3), 100, np.uint8)
    shift = apply("Intensity", f'intensityStdDev = 5 ; intensityFile = "{path}"', gray) - 100
    assert np.abs(shift).min() > 0 and np.allclose(shift, shift[0, 0])
    path.write_text(xml(Channel=3, Row=4, Col=5, MeanImg=mean))
    with pytest.raises(FormatError, match="has 72 numbers"):
        apply("Mean", f'meanFile = "{path}"', image)
    path.write_text("<a><b></a>")
    with pytest.raises(FormatError, match="no XML of OpenCV"):
        read_opencv(str(path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a.png 1\n", ":1: two or three columns"),
        ("a.png\t1\nb.png\tx\n", ":2: the class: 'x' is no whole number from 0"),
        ("a.png\t5\n", ":1: class 5 is not below 2"),
        ("\n", "the map is empty"),
    ],
)
def test_wrong_maps(tmp_path, text, why):
    (tmp_path / "map.txt").write_text(text)
    with pytest.raises(FormatError, match=why):
        read_map(str(tmp_path / "map.txt"), 2)


def test_wrong_images(tmp_path):
    pictures(tmp_path)
    for data, why in ((png(picture(1))[:50], "image file is truncated"), (b"?", "unknown format")):
        (tmp_path / "1.png").write_bytes(data)
        with create_reader(section(tmp_path, "randomize = none")) as reader:
            with pytest.raises(FormatError, match=f"map.txt:2: the image cannot be decoded: {why}"):
                epoch(reader, 3)
    (tmp_path / "1.png").unlink()
    with create_reader(section(tmp_path, "randomize = none")) as reader:
        with pytest.raises(FormatError, match=r"map.txt:2: .*1.png: No such file"):
            epoch(reader, 3)


def test_images_of_several_sizes(tmp_path):
    pictures(tmp_path)
    (tmp_path / "1.png").write_bytes(png(picture(1, 9, 9)))
    config = ConfigParameters(
        f"""randomize = false ; deserializers = ( [ type = "ImageDeserializer"
        file = "{tmp_path}/map.txt" ; input = [
            features = [ transforms = ( [ type = "Transpose" ] ) ] ; labels = [ labelDim = 2 ] ] ] )
        """
    )
    with create_reader(config) as reader:
        with pytest.raises(ShapeError, match="map.txt:2: the image has the shape"):
            epoch(reader, 3)


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ('cropType = "left"', "cropType is one of"),
        ('cropType = "randomside"', "needs sideRatio"),
        ("sideRatio = 0.5:2", "no range within 0 and 1"),
        ("sideRatio = 0.5 ; areaRatio = 0.5", "cannot both be given"),
        ('interpolations = "best"', "nearest, linear, cubic, lanczos"),
        ("brightnessRadius = 2", "from 0 to 1"),
        ('scaleMode = "fit"', "fill, crop or pad"),
        ('mbFormat = "chwn"', "nchw or nhwc"),
        ("width = 0", "cannot be"),
    ],
)
def test_wrong_configs(tmp_path, features, why):
    pictures(tmp_path)
    with pytest.raises(FormatError, match=why):
        create_reader(section(tmp_path, "", features))
