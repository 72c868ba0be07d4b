"""Builds the wheel and the source archive of this package, with Python's own library only (PEP 517).

The wheel has librota.so in it where one was built: where ROTA_SDK says, or in the release folder of this repository. Without
one the package looks beside the shim when it is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
NAME = "rota"
LIBRARY = "librota.so"
# The first instant that a zip archive can name: the same source makes the same wheel.
EPOCH = (1980, 1, 1, 0, 0, 0)

Settings = Optional[Dict[str, Any]]


def _version() -> str:
    text = (ROOT / NAME / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "([^"]+)"', text)
    if match is None:
        raise RuntimeError("rota/_version.py names no version")
    return match.group(1)


def _library() -> Optional[Path]:
    chosen = os.environ.get("ROTA_SDK")
    if chosen:
        path = Path(chosen)
        path = path / LIBRARY if path.is_dir() else path
        if not path.is_file():
            raise RuntimeError(f"ROTA_SDK names {path}, which is not there")
        return path
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT.parent / "target"))
    built = target / "release" / LIBRARY
    return built if built.is_file() else None


def _metadata() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    head = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {_version()}",
        "Summary: What a Python program can say to rota, which shares NVIDIA GPUs between programs",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(head) + "\n\n" + readme


def _tag(library: Optional[Path]) -> str:
    return "py3-none-any" if library is None else f"py3-none-linux_{platform.machine()}"


def _sources() -> List[Path]:
    package = ROOT / NAME
    return sorted(path for path in package.iterdir() if path.suffix == ".py" or path.name == "py.typed")


def get_requires_for_build_wheel(config_settings: Settings = None) -> List[str]:
    """Nothing is needed."""
    return []


def get_requires_for_build_sdist(config_settings: Settings = None) -> List[str]:
    """Nothing is needed."""
    return []


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    """Writes the wheel, and returns its name."""
    library = _library()
    tag = _tag(library)
    info = f"{NAME}-{_version()}.dist-info"
    files: List[Tuple[str, bytes]] = [(f"{NAME}/{path.name}", path.read_bytes()) for path in _sources()]
    if library is not None:
        files.append((f"{NAME}/{LIBRARY}", library.read_bytes()))
    pure = "true" if library is None else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: rota_build\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files.append((f"{info}/METADATA", _metadata().encode()))
    files.append((f"{info}/WHEEL", wheel.encode()))
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files)
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode()))
    name = f"{NAME}-{_version()}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files:
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Writes the source archive, and returns its name."""
    base = f"{NAME}-{_version()}"
    name = f"{base}.tar.gz"
    own = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "backend" / "rota_build.py"]
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path in own + _sources():
            archive.add(path, f"{base}/{path.relative_to(ROOT)}")
        data = _metadata().encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return name


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
