"""Layouts and archives that are not what they should be, and documents that lie."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import image_bases as bases
import pytest

from patchline.errors import PatchlineError, SourceMismatch, UsageError
from patchline.image import base, model
from patchline.image.archive import Archive
from patchline.image.layout import Layout
from patchline.image.opening import opened


def made() -> bases.Made:
    return bases.image([bases.pack(bases.root()), bases.pack([bases.member("a", b"a")])])


def layout(
    at: Path, *, manifest: Callable[[Any], Any] = lambda it: it, config: Callable[[Any], Any] = lambda it: it
) -> Layout:
    """A layout whose documents were changed, with digests that are right."""
    one = made()
    changed = bases.described(json.dumps(config(json.loads(one.config))).encode(), one.layers)
    data = json.dumps(manifest(json.loads(changed.manifest))).encode()
    return Layout(bases.layout(changed._replace(manifest=data), at / "base"))


DOCUMENTS: dict[str, tuple[dict[str, Callable[[Any], Any]], str]] = {
    "schema 1": ({"manifest": lambda it: it | {"schemaVersion": 1}}, "of schema 1, and not of 2"),
    "another type inside": ({"manifest": lambda it: it | {"mediaType": model.INDEX}}, "and it says"),
    "no config": ({"manifest": lambda it: {"schemaVersion": 2, "layers": []}}, "missing required field `config`"),
    "a list": ({"manifest": lambda it: [it]}, "Expected `object`, got `array`"),
    "a layer less": ({"manifest": lambda it: it | {"layers": it["layers"][:1]}}, "has 2 layers, its manifest 1"),
    "sha512": (
        {"manifest": lambda it: it | {"config": it["config"] | {"digest": "sha512:" + "0" * 128}}},
        "no digest that can be checked",
    ),
    "a digest that leads elsewhere": (
        {"manifest": lambda it: it | {"config": it["config"] | {"digest": "sha256:../../../../etc/passwd"}}},
        "no digest that can be checked",
    ),
    "a wrong size": ({"manifest": lambda it: it | {"config": it["config"] | {"size": 3}}}, "wrong size"),
    "a negative size": (
        {"manifest": lambda it: it | {"config": it["config"] | {"size": -1}}},
        "no digest that can be checked",
    ),
    "a document as long as a layer": (
        {"manifest": lambda it: it | {"config": it["config"] | {"size": 2**40}}},
        "a document may have",
    ),
    "no rootfs": ({"config": lambda it: {"os": "linux", "architecture": "amd64"}}, "missing required field `rootfs`"),
    "another machine": ({"config": lambda it: it | {"architecture": "arm64"}}, "this image is for linux/arm64"),
    "another system": ({"config": lambda it: it | {"os": "windows"}}, "this image is for windows/amd64"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_lie(tmp_path: Path, name: str) -> None:
    changes, message = DOCUMENTS[name]
    with pytest.raises(SourceMismatch) as caught:
        base.find(layout(tmp_path, **changes))
    assert message in str(caught.value)


def refuses(kind: type[PatchlineError], message: str, name: str) -> None:
    with pytest.raises(kind) as caught, opened(name) as source:
        base.find(source)
    assert message in str(caught.value)


def test_no_layout(tmp_path: Path) -> None:
    refuses(UsageError, "there is no OCI image layout here", f"oci:{tmp_path}")
    folder = bases.layout(made(), tmp_path / "base")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "2.0.0"}')
    refuses(UsageError, "of another version", f"oci:{folder}")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text('{"schemaVersion": 2, "manifests": []}')
    refuses(UsageError, "there is not one image", f"oci:{folder}")


def test_a_blob_that_is_gone_or_another(tmp_path: Path) -> None:
    one = made()
    folder = bases.layout(one, tmp_path / "base")
    config = folder / "blobs" / "sha256" / bases.sha(one.config).removeprefix("sha256:")
    config.write_bytes(one.config.replace(b"amd64", b"arm64"))
    refuses(SourceMismatch, f"wrong bytes\n  wanted: {bases.sha(one.config)}", f"oci:{folder}")
    config.unlink()
    refuses(SourceMismatch, "the layout has no sha256:", f"oci:{folder}")


def test_several_images_are_a_choice(tmp_path: Path) -> None:
    folder = bases.layout(made(), tmp_path / "base")
    said = json.loads((folder / "index.json").read_text())
    other = bases.image([bases.pack([bases.member("b", b"b")])])
    listed = {"mediaType": other.kind, "digest": other.digest, "size": len(other.manifest)}
    for data in (other.manifest, *other.blobs.values()):
        (folder / "blobs" / "sha256" / bases.sha(data).removeprefix("sha256:")).write_bytes(data)
    (folder / "index.json").write_text(json.dumps(said | {"manifests": [*said["manifests"], listed]}))
    refuses(UsageError, "name one by its digest", f"oci:{folder}")
    assert base.find(Layout(folder), other.digest).digest == other.digest


def test_an_archive_of_several_layers_twice(tmp_path: Path) -> None:
    one = bases.image([bases.pack(bases.root()), bases.pack(bases.root())])
    with opened(f"docker-archive:{bases.saved(one, tmp_path / 'saved.tar')}") as source:
        found = base.find(source)
        assert found.digest == one.digest
        assert [b"".join(source.chunks(layer)) for layer in found.layers] == [one.layers[0].data] * 2


def test_archives_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    refuses(UsageError, "this is no archive of an image", f"docker-archive:{path}")
    path.write_bytes(b"x" * 2000)
    refuses(UsageError, "this is no archive of an image", f"docker-archive:{path}")
    with tarfile.open(path, "w"):
        pass
    refuses(SourceMismatch, "the archive has no manifest.json", f"docker-archive:{path}")


def test_a_layer_of_an_archive_that_is_another(tmp_path: Path) -> None:
    one = made()
    wrong = one._replace(layers=[one.layers[0], one.layers[1]._replace(data=one.layers[1].data.replace(b"a", b"b"))])
    source = Archive(bases.saved(wrong, tmp_path / "saved.tar"))
    with pytest.raises(SourceMismatch, match="wrong bytes"):
        b"".join(source.chunks(base.find(source).layers[1]))


def test_names_of_sources(tmp_path: Path) -> None:
    refuses(UsageError, "names no image", "nothing")
    refuses(UsageError, "names no image", "docker://registry.example/x")
