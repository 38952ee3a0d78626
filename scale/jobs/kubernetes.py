"""Jobs of Kubernetes, through `kubectl`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import RunError
from .job import Resources, Script
from .schedulers import ask

_LABEL = "opscope-run"
_KEPT = 3600
"""Seconds that Kubernetes keeps a job that is over."""
_USAGE = (
    "--cmd: kubernetes --image IMAGE --volume CLAIM:/PATH [--volume ...] [--namespace NAME]"
    " [--mem 4G] [--num-threads N] [--gpu N] [--max-jobs-run N]"
)


class KubernetesRunner:
    """One `Job` of a single pod for each script.

    All pods mount the same volumes as the machine on which the training is started, at the same
    paths; the image holds opscope and a shell.
    """

    name = "Kubernetes"
    patience = 15.0

    def __init__(self, resources: Resources) -> None:
        self.most = resources.most
        self.threads = resources.threads or 1
        self._volumes: list[tuple[str, str]] = []
        self._image = ""
        self._namespace = ""
        words = list(resources.rest)
        while words:
            option = words.pop(0)
            value = words.pop(0) if words else ""
            if option == "--image":
                self._image = value
            elif option == "--namespace":
                self._namespace = value
            elif option == "--volume" and re.fullmatch(r"[a-z0-9.-]+:/.*", value):
                claim, _, path = value.partition(":")
                self._volumes.append((claim, path))
            else:
                raise RunError(f"{option} {value}: want {_USAGE}")
        if not self._image or not self._volumes:
            raise RunError(f"Kubernetes wants an image and a volume that all jobs share: {_USAGE}")
        self._wanted = {"cpu": str(self.threads)}
        if resources.memory:
            self._wanted["memory"] = re.sub(r"([KMGT])[Bb]?$", r"\1i", resources.memory)
        self._bounds = {"nvidia.com/gpu": str(resources.gpus)} if resources.gpus else {}

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        name = _dns_name(f"{script.run}-{script.name}")
        text = json.dumps(self._manifest(name, script))
        ask("kubectl", *self._where(), "create", "-f", "-", text=text)
        return name

    def _manifest(self, name: str, script: Script) -> dict[str, Any]:
        names = [f"volume-{number}" for number in range(len(self._volumes))]
        container = {
            "name": "job",
            "image": self._image,
            "command": ["/bin/sh", script.path],
            "resources": {"requests": self._wanted, "limits": self._bounds},
            "volumeMounts": [
                {"name": each, "mountPath": path}
                for each, (_, path) in zip(names, self._volumes, strict=True)
            ],
        }
        pod = {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [
                {"name": each, "persistentVolumeClaim": {"claimName": claim}}
                for each, (claim, _) in zip(names, self._volumes, strict=True)
            ],
        }
        labels = {_LABEL: script.run}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": _KEPT,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _where(self) -> list[str]:
        return ["--namespace", self._namespace] if self._namespace else []

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        listing = ask("kubectl", *self._where(), "get", "jobs", "-l", _LABEL, "-o", "json")
        try:
            items = json.loads(listing)["items"]
            alive = {item["metadata"]["name"] for item in items if not _is_over(item)}
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"kubectl get jobs printed no list of jobs: {error!r}") from None
        return alive & set(identifiers)

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`."""
        words = ["delete", "job", identifier, "--ignore-not-found", "--wait=false"]
        ask("kubectl", *self._where(), *words)


def _is_over(item: dict[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions") or []
    return any(
        entry.get("type") in ("Complete", "Failed") and entry.get("status") == "True"
        for entry in conditions
    )


def _dns_name(text: str) -> str:
    """A name that Kubernetes takes: small letters, digits and `-`, at most 63 of them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")
