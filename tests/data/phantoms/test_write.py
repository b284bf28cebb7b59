import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastdime.data import io
from fastdime.data.phantoms import write
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.phantom import STUDIES, phantom
from fastdime.data.phantoms.show import draw_set
from fastdime.data.phantoms.write import PhantomSet, image_path, read_config, truth_path, write_phantom
from fastdime.data.table import read_table
from fastdime.errors import DataError, InputError
from fastdime.sheets import CAPTION, GAP


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", STUDIES)
def test_a_set_on_disk_is_the_set_in_memory(name: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    wanted = PhantomSet(name, 20, k=75, seed=3, size=32, dials=Dials(label_noise=0.3))
    path = write_phantom(tmp_path / "set", wanted, lambda *done: seen.append(done))
    assert seen == [(16, 20), (20, 20)]
    table, batch = read_table(path), phantom(name, 32, wanted.dials).render(3, range(20), 75)
    assert table.column("task") == tuple(batch.task.tolist())
    assert table.column("true_task") == tuple(batch.y.tolist())
    assert table.column("shortcut") == tuple(batch.shortcut.tolist())
    assert table.column("placebo") == tuple(batch.placebo.tolist())
    assert set(table.groups["split"]) <= {"train", "val", "test"}
    for latent, values in batch.latents.items():
        assert table.column(latent) == pytest.approx(values.tolist(), rel=1e-6, abs=1e-9)
    folder = path.parent
    for row, image_id in enumerate(table.ids):
        assert torch.equal(io.read(table.paths[row]).x, batch.x[row])
        assert torch.equal(io.read(truth_path(folder, "other", image_id)).x, batch.other[row])
        assert torch.equal(io.read(truth_path(folder, "placebo", image_id)).x, batch.placebo_other[row])
        assert torch.equal(io.read_mask(truth_path(folder, "region", image_id)), batch.region[row])
    with path.open() as file:
        assert next(csv.reader(file))[:8] == [
            *("id", "path", "task", "shortcut", "placebo", "split", "true_task", "z")
        ]


def test_an_interrupted_set_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = PhantomSet("chest-drain", 40, k="none", size=32)
    write_phantom(tmp_path / "whole", wanted)
    save, calls = io.write_image, [0]

    def fail(*arguments: object, **options: object) -> None:
        calls[0] += 1
        if calls[0] == 61:
            raise KeyboardInterrupt
        save(*arguments, **options)

    monkeypatch.setattr(write.io, "write_image", fail)
    with pytest.raises(KeyboardInterrupt):
        write_phantom(tmp_path / "part", wanted)
    assert not (tmp_path / "part" / "table.csv").exists()
    (tmp_path / "part" / "images" / ".1-rest.tmp").touch()
    before = calls[0]
    write_phantom(tmp_path / "part", wanted)
    assert calls[0] - before == 60  # three pictures for each of 20 images; the first 20 are there
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    stamps = [path.stat().st_mtime_ns for path in sorted((tmp_path / "whole" / "images").iterdir())]
    write_phantom(tmp_path / "whole", wanted)
    assert stamps == [path.stat().st_mtime_ns for path in sorted((tmp_path / "whole" / "images").iterdir())]


def test_a_longer_set_begins_with_the_shorter(tmp_path: Path) -> None:
    short, long = (write_phantom(tmp_path / str(n), PhantomSet("skin-ruler", n, size=32)) for n in (5, 9))
    assert long.read_text().startswith(short.read_text())
    assert short.read_text().count("\n") == 6


def test_settings_are_kept(tmp_path: Path) -> None:
    write_phantom(tmp_path, PhantomSet("face-smile", 1, k=100, seed=7, size=40, dials=Dials(contrast=0.5)))
    config = read_config(tmp_path)
    assert config == json.loads((tmp_path / "dataset.json").read_text())
    assert {key: config[key] for key in ("phantom", "n", "k", "seed", "size", "task", "shortcut")} == {
        **{"phantom": "face-smile", "n": 1, "k": 100, "seed": 7, "size": 40, "task": "young"},
        "shortcut": "smile",
    }
    assert config["dials"]["contrast"] == 0.5
    assert image_path(tmp_path, "0007-000000").exists()


def test_another_set_in_the_folder_is_refused(tmp_path: Path) -> None:
    write_phantom(tmp_path / "set", PhantomSet("face-smile", 1, size=32))
    before = contents(tmp_path / "set")
    with pytest.raises(InputError, match=r"set: seed of the set that is there: expected 1, got 0; choose"):
        write_phantom(tmp_path / "set", PhantomSet("face-smile", 1, size=32, seed=1))
    with pytest.raises(InputError, match=r"dials of the set that is there"):
        write_phantom(tmp_path / "set", PhantomSet("face-smile", 1, size=32, dials=Dials(noise=0)))
    assert contents(tmp_path / "set") == before
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(InputError, match=r"expected an empty folder or a phantom set, got one with 'set'"):
        write_phantom(tmp_path, PhantomSet("face-smile", 1, size=32))
    with pytest.raises(InputError, match=r"thesis.doc: expected a place that can be written"):
        write_phantom(tmp_path / "thesis.doc", PhantomSet("face-smile", 1, size=32))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n": 0}, "n: expected a whole number of images from 1 to 1000000, got 0"),
        ({"n": 2.5}, "n: expected a whole number of images"),
        ({"k": "some"}, "k: expected a percentage"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"size": 31}, "size: expected a whole number from 32 to 224, got 31"),
        ({"name": "chest"}, "phantom: expected one of chest-pacemaker, chest-drain, skin-ruler, face-smile"),
        ({"splits": {"train": 0.5}}, "splits: expected shares above 0 that add up to 1"),
        ({"splits": {}}, "splits: expected"),
        ({"splits": {"foo": 1}}, "splits: expected one of train, val, test, got 'foo'"),
        ({"splits": {"train": 1.5, "test": -0.5}}, "splits: expected"),
    ],
)
def test_refusals(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        PhantomSet(**{"name": "chest-drain", "n": 4, **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["chest-pacemaker", "skin-ruler"])
def test_picture_of_a_set(name: str, tmp_path: Path) -> None:
    table = read_table(write_phantom(tmp_path / "set", PhantomSet(name, 8, size=64)))
    picture = draw_set(tmp_path / "set", tmp_path / "new" / "grid.png", limit=2)
    with Image.open(picture) as image:
        sheet = np.asarray(image)
    first = io.read(image_path(tmp_path / "set", "0000-000000")).x.numpy()
    shown = np.repeat(np.repeat(((first + 1) * 127.5).round(), 2, 1), 2, 2).transpose(1, 2, 0)
    assert np.array_equal(
        sheet[CAPTION : CAPTION + 128, GAP : GAP + 128], np.broadcast_to(shown, (128, 128, 3))
    )
    difference = sheet[CAPTION : CAPTION + 128, 6 + 2 * 134 : 6 + 2 * 134 + 128].astype(int)
    redder = (difference[..., 0] - difference[..., 2]).sum() > 0
    comes, bright = table.column("shortcut")[0] == 0, name == "chest-pacemaker"
    assert redder == (comes == bright)
    assert len(list((tmp_path / "new").iterdir())) == 1
    wide = draw_set(tmp_path / "set", tmp_path / "wide.png")
    with Image.open(wide) as image:
        assert image.width > 2 * 5 * 128


def test_no_picture_of_what_is_not_a_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset.json: expected the settings of a phantom set, got No such"):
        draw_set(tmp_path, tmp_path / "grid.png")
    (tmp_path / "dataset.json").write_text("[]")
    with pytest.raises(DataError, match="got something else; make one with: fastdime data phantom"):
        draw_set(tmp_path, tmp_path / "grid.png")
    with pytest.raises(InputError, match="limit: expected 1 or more, got 0"):
        draw_set(tmp_path, tmp_path / "grid.png", limit=0)


def test_without_truth_the_images_and_the_table_are_the_same(tmp_path: Path) -> None:
    whole = PhantomSet("chest-drain", 5, k=75, seed=2, size=32)
    bare = PhantomSet("chest-drain", 5, k=75, seed=2, size=32, truth=False)
    write_phantom(tmp_path / "whole", whole)
    write_phantom(tmp_path / "bare", bare)
    ours, theirs = contents(tmp_path / "bare"), contents(tmp_path / "whole")
    assert {name for name in theirs if name.startswith("truth/")} == theirs.keys() - ours.keys()
    assert all(ours[name] == theirs[name] for name in ours if name != "dataset.json")
    for folder, other in (("bare", whole), ("whole", bare)):
        with pytest.raises(InputError, match="truth of the set that is there"):
            write_phantom(tmp_path / folder, other)


def test_images_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr("os.fsync", waits.append)
    write_phantom(tmp_path, PhantomSet("chest-drain", 4, size=32))
    assert len(waits) <= 2  # the settings and the table
