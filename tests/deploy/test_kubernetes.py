"""The Kubernetes manifests are valid, and agree with each other and with the image.

No test applies them: that needs a cluster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.outside_tool import DEPLOY, judge

MANIFESTS = DEPLOY / "kubernetes"
FILES = sorted(path for path in MANIFESTS.glob("*.yaml") if path.stem != "kustomization")
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    (document["kind"], document["metadata"]["name"]): document
    for path in FILES
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
}
STATEFUL_SET = OBJECTS["StatefulSet", "cordwood"]["spec"]
POD = STATEFUL_SET["template"]
(CONTAINER,) = POD["spec"]["containers"]
SETTINGS = OBJECTS["ConfigMap", "cordwood"]["data"]["cordwood.toml"]


@pytest.mark.parametrize("version", ["1.29", "1.34"])
@pytest.mark.parametrize("manifest", FILES, ids=lambda path: path.stem)
def test_kubernetes_schemas_accept_the_manifests(manifest: Path, version: str) -> None:
    judge("kubernetes-validate", "--strict", "--quiet", "-k", version, manifest)


def test_the_kustomization_lists_every_manifest() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))

    assert sorted(listed["resources"]) == [path.name for path in FILES]


def test_services_budget_and_policy_select_the_pod() -> None:
    labels = POD["metadata"]["labels"]
    selectors = [
        STATEFUL_SET["selector"]["matchLabels"],
        OBJECTS["Service", "cordwood"]["spec"]["selector"],
        OBJECTS["Service", "cordwood-headless"]["spec"]["selector"],
        OBJECTS["PodDisruptionBudget", "cordwood"]["spec"]["selector"]["matchLabels"],
        OBJECTS["NetworkPolicy", "cordwood"]["spec"]["podSelector"]["matchLabels"],
    ]

    assert [selector for selector in selectors if not selector.items() <= labels.items()] == []
    assert OBJECTS["Service", STATEFUL_SET["serviceName"]]["spec"]["clusterIP"] == "None"


def test_the_ports_are_those_of_the_settings() -> None:
    import tomllib

    settings = tomllib.loads(SETTINGS)
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}

    assert ports == {"kafka": settings["port"], "metrics": settings["metrics"]["port"]}
    assert settings["advertised"]["host"] == "cordwood"  # the service of clients


def test_the_settings_are_valid_and_the_data_is_on_the_volume(tmp_path: Path) -> None:
    import tomllib

    file = tmp_path / "cordwood.toml"
    file.write_text(SETTINGS)

    finished = subprocess.run(
        [sys.executable, "-m", "cordwood", "config", "show", "--config", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    (directory,) = tomllib.loads(SETTINGS)["log"]["dirs"]
    assert directory.startswith(mounts["data"] + "/")


def test_a_restart_cannot_help_against_what_only_readiness_looks_at() -> None:
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert CONTAINER["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_kubernetes_waits_longer_than_a_stopping_broker() -> None:
    from cordwood.broker.config.broker_config import BrokerConfig

    waits_s = POD["spec"]["terminationGracePeriodSeconds"]

    assert waits_s * 1000 >= 2 * BrokerConfig().shutdown_timeout_ms


def test_the_image_has_the_version_of_this_release() -> None:
    import cordwood

    assert CONTAINER["image"] == f"cordwood:{cordwood.__version__}"
