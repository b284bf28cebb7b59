import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fastdime.bundles import BundleInfo, load_bundle, pack_bundle, part_of, save_bundle, shipped
from fastdime.classifiers.networks import small_cnn
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.counterfactuals.explainer import Explainer
from fastdime.diffusion.denoiser import Denoiser, as_denoiser
from fastdime.diffusion.schedule import linear
from fastdime.errors import CheckpointError, InputError
from support.commands import complaint, fastdime_command

INFO = BundleInfo(name="squares", size=16, channels=1, description="tiny", classes=("without", "with"))
SPEC = ClassifierSpec(architecture="small-cnn", size=16, channels=1, low=0.0)


def test_a_part_is_looked_for_in_the_same_places_as_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = shipped()[0]
    assert part_of(name, "denoiser") == load_bundle(name).folder / "denoiser"
    assert part_of("fastdime.toy:denoiser", "denoiser") == "fastdime.toy:denoiser"
    (tmp_path / name / "denoiser").mkdir(parents=True)
    assert part_of(name, "denoiser") == Path(name) / "denoiser"


@pytest.fixture(scope="module")
def parts() -> tuple[Denoiser, nn.Module]:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        add_attention=False,
    )
    return as_denoiser(unet.eval(), linear(200), variance="fixed_large"), small_cnn(1, 1, 8)


@pytest.fixture(scope="module")
def saved(parts: tuple[Denoiser, nn.Module], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "squares"
    save_bundle(path, INFO, *parts, SPEC)
    return path


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "squares"))


def test_round_trip(parts: tuple[Denoiser, nn.Module], saved: Path) -> None:
    denoiser, classifier = parts
    bundle = load_bundle(saved)
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    times = torch.tensor([3, 199])
    assert bundle.info == INFO
    assert (bundle.name, bundle.size, bundle.channels) == ("squares", 16, 1)
    assert (bundle.denoiser.size, bundle.denoiser.channels) == (16, 1)
    assert (bundle.denoiser.variance, bundle.denoiser.prediction) == ("fixed_large", "epsilon")
    np.testing.assert_allclose(bundle.denoiser.schedule.betas, denoiser.schedule.betas, rtol=1e-12)
    with torch.no_grad():
        ours, theirs = bundle.denoiser.posterior(x, times), denoiser.posterior(x, times)
        torch.testing.assert_close(ours.x0_hat, theirs.x0_hat, rtol=0, atol=0)
        torch.testing.assert_close(bundle.classifier.logits(x, times), classifier(x / 2 + 0.5))
    assert not bundle.denoiser.network.training
    assert not bundle.classifier.module.training
    assert sorted(path.name for path in saved.parent.iterdir()) == ["squares"]


@pytest.mark.parametrize("part", ["bundle.json", "denoiser", "classifier"])
def test_a_missing_part_is_named(part: str, copied: Path) -> None:
    gone = copied / part
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.raises(CheckpointError, match=rf"squares: expected bundle.json, .*, got no {part}"):
        load_bundle(copied)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "bundle.json: format: expected 1, got 2; use the version of fastdime that made it"),
        ({"channels": 3}, "expected a denoiser with channels 3, got 1"),
        ({"size": 32}, "expected a denoiser with size 32, got 16"),
        ({"channels": 2}, "bundle.json: channels: expected 1 or 3, got 2"),
        ({"clases": []}, "got 'clases'; did you mean 'classes'?"),
        ({"name": ""}, "bundle.json: name: "),
    ],
)
def test_a_wrong_bundle_json(change: dict[str, Any], sentence: str, copied: Path) -> None:
    info = json.loads((copied / "bundle.json").read_text())
    (copied / "bundle.json").write_text(json.dumps(info | change))
    with pytest.raises(CheckpointError, match=sentence) as error:
        load_bundle(copied)
    assert "\n" not in str(error.value)


def test_no_bundle_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"expected a folder, or one that comes with fastdime .*, got nothing of that name",
    ):
        load_bundle(tmp_path / "none")


def test_nothing_is_left_of_a_bundle_that_cannot_be_saved(
    parts: tuple[Denoiser, nn.Module], saved: Path, tmp_path: Path
) -> None:
    denoiser, classifier = parts
    with pytest.raises(InputError, match="bundle squares: expected a denoiser with channels 3"):
        save_bundle(tmp_path / "a", INFO.model_copy(update={"channels": 3}), denoiser, classifier, SPEC)
    wrong = SPEC.model_copy(update={"architecture": "resnet18"})
    with pytest.raises(CheckpointError, match="weights that fit"):
        save_bundle(tmp_path / "a", INFO, denoiser, classifier, wrong)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="expected a new or empty folder"):
        save_bundle(saved, INFO, denoiser, classifier, SPEC)


def test_packed_from_folders(saved: Path, tmp_path: Path) -> None:
    """Half the bytes, nearly the same numbers; with oracles, settings and a card."""
    (tmp_path / "card.md").write_text("# Squares\n")
    parts = {
        "denoiser": saved / "denoiser",
        "classifier": saved / "classifier",
        "oracles/strict": saved / "classifier",
        "README.md": tmp_path / "card.md",
    }
    info = INFO.model_copy(update={"settings": {"fastdime": {"tau": 7}}})
    pack_bundle(tmp_path / "half", info, parts, half=True)
    half, whole = load_bundle(tmp_path / "half"), load_bundle(saved)
    name = "classifier/model.safetensors"
    assert (tmp_path / "half" / name).stat().st_size < 0.6 * (saved / name).stat().st_size
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    times = torch.tensor([3, 199])
    torch.testing.assert_close(
        half.denoiser.network(x, times), whole.denoiser.network(x, times), atol=2e-3, rtol=0
    )
    torch.testing.assert_close(
        half.oracle("strict").logits(x, times), whole.classifier.logits(x, times), atol=2e-3, rtol=0
    )
    assert next(half.classifier.module.parameters()).dtype == torch.float32
    assert Explainer.from_bundle(half).resolved.tau == 7
    assert Explainer.from_bundle(half, "fastdime", tau=9).resolved.tau == 9
    assert (tmp_path / "half" / "README.md").read_text() == "# Squares\n"
    with pytest.raises(InputError, match="oracle of bundle squares: expected one of strict, got 'strikt'"):
        half.oracle("strikt")


def test_one_name_for_each_class(parts: tuple[Denoiser, nn.Module], saved: Path, tmp_path: Path) -> None:
    words = ["bundle", "pack", tmp_path / "b", "--denoiser", saved / "denoiser"]
    words += ["--classifier", saved / "classifier", "--classes"]
    for names, count in (("a", 1), ("a,,b", 3)):
        sentence = complaint(fastdime_command(*words, names))
        assert f"classes of bundle b: expected 2 names, got {count} (a" in sentence
    many = SPEC.model_copy(update={"kind": "multiclass"})
    with pytest.raises(InputError, match=r"expected 3 names, got 2 \(without, with\)"):
        save_bundle(tmp_path / "c", INFO, parts[0], small_cnn(1, 3, 8), many)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_would_not_open_is_not_packed(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no classifier"):
        pack_bundle(tmp_path / "bad", INFO, {"denoiser": saved / "denoiser"})
    with pytest.raises(InputError, match="lost: expected a folder or a file"):
        pack_bundle(tmp_path / "bad", INFO, {"denoiser": saved / "lost"})
    assert list(tmp_path.iterdir()) == []
