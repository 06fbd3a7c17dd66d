"""The package that is installed everywhere here, as it would be uploaded."""

from __future__ import annotations

import json
from zipfile import ZipFile

from conftest import packaged_extension


def test_the_package_is_small_and_holds_what_it_needs_and_nothing_else() -> None:
    package = packaged_extension()
    assert package.stat().st_size < 1_000_000
    with ZipFile(package) as archive:
        names = {name.lower() for name in archive.namelist()}
        manifest = json.loads(archive.read("extension/package.json"))
    assert not [name for name in names if "test" in name or name.endswith((".map", ".ts"))]
    wanted = [
        manifest["icon"],
        manifest["main"].removeprefix("./"),
        "readme.md",
        "changelog.md",
        "images/completion.png",
    ]
    steps = manifest["contributes"]["walkthroughs"][0]["steps"]
    wanted += [step["media"]["markdown"] for step in steps]
    for name in wanted:
        assert f"extension/{name}".lower() in names
    assert any("licen" in name for name in names)
    assert manifest["categories"] and manifest["license"] and manifest["publisher"]
