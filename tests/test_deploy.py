"""The files of deploy/ and compose: they parse and agree, and installed tools accept them."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey.overlay.node.config import load_overlay, select_broker
from covey.overlay.node.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
HEALTH = ["covey", "health"]


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.y*ml")), ids=lambda path: path.name)
def test_every_file_is_yaml(path: Path) -> None:
    assert all(documents(path))


def test_every_manifest_is_in_the_kustomization() -> None:
    folder = DEPLOY / "kubernetes"
    (kustomization,) = documents(folder / "kustomization.yaml")
    generated = [name for each in kustomization["configMapGenerator"] for name in each["files"]]
    named = {"kustomization.yaml", *kustomization["resources"], *generated}
    assert named == {path.name for path in folder.iterdir()}


def test_the_pods_are_the_brokers_of_the_overlay_file() -> None:
    folder = DEPLOY / "kubernetes"
    overlay = load_overlay(folder / "overlay.yaml", {})
    (stateful,) = documents(folder / "statefulset.yaml")
    headless, clients = documents(folder / "services.yaml")
    spec = stateful["spec"]
    assert list(overlay.brokers) == [f"{stateful['metadata']['name']}-{i}" for i in range(spec["replicas"])]
    for name, broker in overlay.brokers.items():
        assert broker.address == f"{name}.{spec['serviceName']}:7001"
    assert spec["serviceName"] == headless["metadata"]["name"]
    assert headless["spec"]["publishNotReadyAddresses"]  # a broker finds others before it is ready
    assert spec["podManagementPolicy"] == "Parallel"
    assert "publishNotReadyAddresses" not in clients["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 7001, "metrics": 9100}
    assert set(overlay.metrics.values()) == {"0.0.0.0:9100"}


@pytest.mark.parametrize(
    "path", ["deploy/kubernetes/overlay.yaml", "deploy/compose/overlay.yaml", "examples/compose.yaml"]
)
def test_every_broker_may_listen_where_it_does(path: str) -> None:
    overlay = load_overlay(ROOT / path, {})
    for name, broker in overlay.brokers.items():
        assert select_broker(overlay, name, {}) == broker


def test_only_readiness_depends_on_neighbours() -> None:
    """An absent neighbour must not make a supervisor restart a broker."""
    (stateful,) = documents(DEPLOY / "kubernetes" / "statefulset.yaml")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["exec"]["command"] == HEALTH
    assert container["startupProbe"]["exec"]["command"] == HEALTH
    assert container["readinessProbe"]["exec"]["command"] == [*HEALTH, "--ready"]
    for name, service in COMPOSE["services"].items():
        if "profiles" not in service:
            assert service["healthcheck"]["test"] == ["CMD", *HEALTH], name
    assert re.search(r'^HEALTHCHECK .* CMD \["covey", "health"\]$', (ROOT / "Dockerfile").read_text(), re.M)


def test_prometheus_and_grafana_ask_for_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "covey.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    (alerts,) = documents(DEPLOY / "prometheus" / "alerts.yml")
    asked += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    known = {metric.name: metric for metric in METRICS}
    for expression in asked:
        for name in re.findall(r"\bcovey_\w+", expression):
            plain = re.sub(r"_(bucket|sum|count)$", "", name)
            metric = known.get(name) or known[plain]
            assert (metric.kind == "histogram") is (name != metric.name), expression
    (prometheus,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    targets = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    overlay = load_overlay(ROOT / "examples" / "compose.yaml", {})
    assert targets == [f"{name}:{address.rpartition(':')[2]}" for name, address in overlay.metrics.items()]


def test_the_image_is_built_from_all_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {folder.partition("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent == {*folders, "pyproject.toml", project["project"]["readme"], "LICENSE"}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "covey@.service").read_text()
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit
    copy = tmp_path / "covey@b1.service"
    copy.write_text(unit.replace("/opt/covey/bin/covey", sys.executable))
    assert run("systemd-analyze", "verify", "--man=no", str(copy)) == ""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not there")
def test_kustomize_accepts_the_base() -> None:
    made = list(yaml.safe_load_all(run("kubectl", "kustomize", "deploy/kubernetes")))
    kinds = sorted(each["kind"] for each in made)
    assert kinds == ["ConfigMap", "PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    (stateful,) = (each for each in made if each["kind"] == "StatefulSet")
    selected = stateful["spec"]["selector"]["matchLabels"]
    assert selected.items() <= stateful["spec"]["template"]["metadata"]["labels"].items()


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="Compose 2 is not there")
def test_compose_accepts_the_file() -> None:
    shown = json.loads(run("docker", "compose", "--profile", "metrics", "config", "--format", "json"))
    assert set(shown["services"]) == set(COMPOSE["services"])
    file = "deploy/compose/compose.yaml"
    stored = json.loads(run("docker", "compose", "--file", file, "config", "--format", "json"))["services"]
    overlay = load_overlay(ROOT / "deploy/compose/overlay.yaml", {})
    assert set(stored) == {"certs", *overlay.brokers}
    for name in overlay.brokers:
        targets = {each["target"] for each in stored[name]["volumes"]}
        assert targets == {"/etc/covey/overlay.yaml", "/etc/covey/certs", overlay.storage}
