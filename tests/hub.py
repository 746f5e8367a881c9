"""A data-set hub on loopback: the four routes by which `datasets` reads a repository.

It speaks as much of the hub's protocol as huggingface_hub 2 asks for: where a file is, what is
in a folder, which commit a name stands for, and that there is no such repository.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

Repository = Mapping[str, bytes | Path]
"""The files of one repository by their paths in it."""

COMMIT = "1" * 40
CONFIGS = ("full", "sanitized")  # of MBPP
SPLITS = ("train", "test", "prompt")


class Hub(ThreadingHTTPServer):
    """Serves repositories of data sets and keeps what was asked."""

    daemon_threads = True

    def __init__(self, repositories: Mapping[str, Repository]) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.repositories = dict(repositories)
        self.asked: list[str] = []
        """Method and path of every request, in order."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def running(self) -> Iterator[Hub]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self.serve_forever, args=(0.01,), name="loopback-hub")
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size)
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        match parts:
            case ["datasets", owner, name, "resolve", _, *path]:
                self._file(f"{owner}/{name}", "/".join(path))
            case ["api", "datasets", owner, name, "tree", _, *path]:
                self._tree(f"{owner}/{name}", "/".join(path))
            case ["api", "datasets", owner, name, "paths-info", _]:
                self._paths(f"{owner}/{name}", parse_qs(body.decode()).get("paths", []))
            case ["api", "datasets", owner, name] | ["api", "datasets", owner, name, "revision", _]:
                self._about(f"{owner}/{name}")
            case _:
                self._missing("EntryNotFound")

    def _file(self, repository: str, path: str) -> None:
        files = self.server.repositories.get(repository)
        if files is None:
            self._missing("RepoNotFound")
        elif path not in files:
            self._missing("EntryNotFound")
        else:
            content = _content(files[path])
            self._send(content, "application/octet-stream", etag=hashlib.sha1(content).hexdigest())

    def _tree(self, repository: str, folder: str) -> None:
        files = self.server.repositories.get(repository)
        if files is None:
            self._missing("RepoNotFound")
            return
        below = f"{folder}/" if folder else ""
        deep = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
        found = [
            entry
            for entry in _entries(files)
            if entry["path"].startswith(below) and (deep or "/" not in entry["path"][len(below) :])
        ]
        self._json(found) if found else self._missing("EntryNotFound")

    def _paths(self, repository: str, paths: list[str]) -> None:
        files = self.server.repositories.get(repository)
        if files is None:
            self._missing("RepoNotFound")
        else:
            self._json([entry for entry in _entries(files) if entry["path"] in paths])

    def _about(self, repository: str) -> None:
        files = self.server.repositories.get(repository)
        if files is None:
            self._missing("RepoNotFound")
        else:
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": repository, "sha": COMMIT, "private": False, "siblings": siblings})

    def _json(self, body: Any) -> None:
        self._send(json.dumps(body).encode(), "application/json")

    def _missing(self, code: str) -> None:
        body = b"{}"
        self.send_response(404)
        self.send_header("x-error-code", code)
        self.send_header("x-repo-commit", COMMIT)
        self._finish(body)

    def _send(self, body: bytes, kind: str, *, etag: str = "") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("x-repo-commit", COMMIT)
        if etag:
            self.send_header("etag", f'"{etag}"')
        self._finish(body)

    def _finish(self, body: bytes) -> None:
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _content(file: bytes | Path) -> bytes:
    return file.read_bytes() if isinstance(file, Path) else file


def _entries(files: Repository) -> list[dict[str, Any]]:
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents} - {"."}
    entries: list[dict[str, Any]] = [
        {"type": "directory", "path": folder, "oid": COMMIT, "size": 0} for folder in folders
    ]
    for path, file in files.items():
        content = _content(file)
        oid = hashlib.sha1(content).hexdigest()
        entries.append({"type": "file", "path": path, "oid": oid, "size": len(content)})
    return sorted(entries, key=lambda entry: entry["path"])


def shared_repositories(data: Path) -> dict[str, Repository]:
    """Give the shared files under the names, configurations and splits they have on the hub."""
    mbpp = {
        f"{config}/{split}.jsonl": data / "mbpp" / config / f"{split}.jsonl"
        for config in CONFIGS
        for split in SPLITS
    }
    mbpp_card = card(
        {config: {split: f"{config}/{split}.jsonl" for split in SPLITS} for config in CONFIGS},
        default="full",
        # JSON does not tell of what a list is that is empty in every row of a split.
        features={
            "full": _features("task_id", "text", "code", "test_setup_code")
            | {"test_list": _LIST, "challenge_test_list": _LIST},
            "sanitized": _features("source_file", "task_id", "prompt", "code")
            | {"test_imports": _LIST, "test_list": _LIST},
        },
    )
    pack = {language: {"test": f"{language}/test.jsonl"} for language in ("python", "java")}
    return {
        "openai/openai_humaneval": {
            "README.md": card({"openai_humaneval": {"test": "test.jsonl"}}),
            "test.jsonl": data / "humaneval" / "test.jsonl",
        },
        "google-research-datasets/mbpp": {"README.md": mbpp_card, **mbpp},
        "bigcode/humanevalpack": {
            "README.md": card(pack),
            "python/test.jsonl": data / "humanevalpack" / "python" / "test.jsonl",
            "java/test.jsonl": b'{"task_id": "Java/0", "prompt": "int zero() {", "test": ""}\n',
        },
    }


_LIST = {"list": "string"}


def _features(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"dtype": "int64" if name == "task_id" else "string"} for name in names}


def card(
    configs: Mapping[str, Mapping[str, str]],
    *,
    default: str = "",
    features: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:
    """Write the README of a repository: its configurations, and the file of each of their splits.

    Parameters
    ----------
    default: the configuration that is read where none is named.
    features: of a configuration, the types of its columns.
    """
    listed = [
        {
            "config_name": name,
            **({"default": True} if name == default else {}),
            "data_files": [{"split": split, "path": path} for split, path in files.items()],
        }
        for name, files in configs.items()
    ]
    typed = [
        {
            "config_name": name,
            "features": [{"name": column, **kind} for column, kind in columns.items()],
        }
        for name, columns in (features or {}).items()
    ]
    told = {"configs": listed, **({"dataset_info": typed} if typed else {})}
    return f"---\n{json.dumps(told)}\n---\n".encode()  # YAML reads JSON


@contextmanager
def reachable(hub: Hub, home: Path) -> Iterator[None]:
    """Let this process, and those it starts, find the hub and keep what it gives in `home`.

    `datasets` reads where the hub and its caches are once, when it is first imported.
    """
    import datasets
    from huggingface_hub import constants

    places = {
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_DATASETS_CACHE": str(home / "datasets"),
        "HF_ENDPOINT": hub.url,
    }
    downloads = home / "datasets" / "downloads"
    with pytest.MonkeyPatch.context() as patch:
        for name, place in places.items():
            patch.setenv(name, place)
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setattr(constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        patch.setattr(datasets.config, "HF_CACHE_HOME", str(home))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
        patch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", downloads)
        patch.setattr(datasets.config, "EXTRACTED_DATASETS_PATH", downloads / "extracted")
        yield
