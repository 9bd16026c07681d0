"""The manifests are valid objects of Kubernetes, and name only things that the product has."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from deploy.kubernetes.__main__ import ALERTS, as_resource
from stoop.config import ProducerConfig
from stoop.exporter.metrics import METRICS
from stoop.exporter.options import ExporterOptions
from stoop.gateway.kserve.inputs import MODEL_NAME
from stoop.gateway.options import ServeOptions
from stoop_worker.config import WorkerConfig
from tests.deploy.kustomization import Object, build, containers_of, key_of, pod_of
from tests.deploy.test_compose import AWS_VARIABLES, COMPOSE, option_variables
from tests.project.modules import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
BUILT = {path.parent.name: build(path.parent) for path in sorted(FOLDER.glob("*/kustomization.yaml"))}
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CUSTOM = {
    kind: Draft202012Validator(schema)
    for kind, schema in json.loads(Path(__file__).with_name("custom_resources.schema.json").read_text()).items()
}
KUBECTL = shutil.which("kubectl")
# the oldest release that is still supported by large clouds, and the newest that the validator knows
RELEASES = ("1.30", "1.37")
PROBES = {
    "worker": {"/healthz", "/readyz", "/startupz"},
    "gateway": {"/healthz", "/readyz"},
    "exporter": {"/healthz"},
    "triton": {"/v2/health/live", f"/v2/models/{MODEL_NAME}/ready"},
}

OBJECTS = {(folder, *key_of(one)): one for folder, objects in BUILT.items() for one in objects}
PODS = {key: one for key, one in OBJECTS.items() if pod_of(one) is not None}
EVERYTHING = {key_of(one): one for one in OBJECTS.values()}


PRODUCER = {f"STOOP_{name.upper()}" for name in ProducerConfig.model_fields}
READ = {
    "worker": {f"STOOP_{name.upper()}" for name in WorkerConfig.model_fields} | AWS_VARIABLES,
    "gateway": PRODUCER | option_variables(ServeOptions) | AWS_VARIABLES,
    "exporter": PRODUCER | option_variables(ExporterOptions),
    "triton": PRODUCER | AWS_VARIABLES,
    "redis": {f"{role}_PASSWORD" for role in ("PRODUCER", "READER", "CLIENT", "WORKER", "OPERATOR")},
}


def named(kind: str, name: str, folder: str = "gpu") -> Object:
    [one] = [one for one in BUILT[folder] if one["kind"] == kind and one["metadata"]["name"] == name]
    return one


def environment(container: Object) -> dict[str, str | None]:
    """The variables of a container; None stands for a value that a secret has."""
    found: dict[str, str | None] = {}
    for source in container.get("envFrom", []):
        found |= named("ConfigMap", source["configMapRef"]["name"])["data"]
    return found | {one["name"]: one.get("value") for one in container.get("env", [])}


def secret_keys(value: Any) -> set[tuple[str, str]]:
    """The keys of secrets that are named anywhere inside."""
    if isinstance(value, list):
        return {found for one in value for found in secret_keys(one)}
    if not isinstance(value, dict):
        return set()
    found = {used for one in value.values() for used in secret_keys(one)}
    for name in ("secretKeyRef", "credentials"):
        if name in value:
            found.add((value[name]["name"], value[name]["key"]))
    return found


@pytest.mark.parametrize("key", OBJECTS, ids="/".join)
def test_an_object_follows_its_schema(key: tuple[str, ...]) -> None:
    one = OBJECTS[key]
    if one["kind"] in CUSTOM:
        assert [error.message for error in CUSTOM[one["kind"]].iter_errors(one)] == []
        return
    for release in RELEASES:
        kubernetes_validate.validate(one, release, strict=True)


@pytest.mark.parametrize(
    "broken",
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dta": {}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}},
    ],
)
def test_the_schemas_refuse_invalid_manifests_as_kubernetes_does(broken: Object) -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, RELEASES[0], strict=True)


def test_the_schemas_of_custom_resources_refuse_unknown_fields() -> None:
    scaler = named("ScaledObject", "stoop-worker", "scale-to-zero")
    assert not CUSTOM["ScaledObject"].is_valid({**scaler, "spec": {**scaler["spec"], "minReplicas": 0}})


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on this machine")
@pytest.mark.parametrize("folder", BUILT)
def test_the_real_kustomize_builds_the_same(folder: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    for path in tmp_path.rglob("kustomization.yaml"):
        _spell_for_old_releases(path)
    command = [str(KUBECTL), "kustomize", str(tmp_path / "kubernetes" / folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # generated names end in a digest, and objects without a namespace may have an empty one
    text = re.sub(r"(name: stoop-redis)-[a-z0-9]{10}\b", r"\1", done.stdout)
    theirs = {key_of(one): one for one in yaml.safe_load_all(text)}
    assert theirs == {key_of(one): one for one in BUILT[folder]}


def _spell_for_old_releases(path: Path) -> None:
    """Write the names that kustomize had for the same fields up to release 2.0, which kubectl 1.20 contains."""
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    folders = [name for name in spec["resources"] if (path.parent / name).is_dir()]
    spec["bases"] = folders
    spec["resources"] = [name for name in spec["resources"] if name not in folders]
    spec["patchesStrategicMerge"] = [patch["path"] for patch in spec.pop("patches", [])]
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")


@pytest.mark.parametrize("key", PODS, ids="/".join)
def test_every_variable_is_one_that_its_program_reads(key: tuple[str, ...]) -> None:
    for container in containers_of(PODS[key]):
        assert set(environment(container)) <= READ[container["name"]]


@pytest.mark.parametrize("folder", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "config"), [("worker", WorkerConfig), ("gateway", ProducerConfig)])
def test_the_values_are_accepted(folder: str, name: str, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [container] = containers_of(named("Deployment", f"stoop-{name}", folder))
    for variable, value in environment(container).items():
        monkeypatch.setenv(variable, "redis://redis:6379/0" if variable == "STOOP_REDIS_URL" else value or "x")
    config()


@pytest.mark.parametrize("key", PODS, ids="/".join)
def test_a_pod_has_few_rights_and_no_services_variables(key: tuple[str, ...]) -> None:
    pod = pod_of(PODS[key])
    assert pod is not None
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    # the variables of a service `stoop-gateway` would be STOOP_GATEWAY_PORT and the like
    assert pod["enableServiceLinks"] is False
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"] or (
            container["name"] in ("gateway", "exporter")
        )
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in PODS[key]["spec"].get("volumeClaimTemplates", [])}
        assert mounts == {volume["name"] for volume in pod["volumes"]} | claims


@pytest.mark.parametrize("key", PODS, ids="/".join)
def test_probes_ask_for_paths_and_ports_that_are_there(key: tuple[str, ...]) -> None:
    for container in containers_of(PODS[key]):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        probes = [container[name] for name in container if name.endswith("Probe")]
        assert len(probes) >= 2
        for probe in probes:
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in PROBES[container["name"]]
                assert probe["httpGet"]["port"] in ports
            elif "tcpSocket" in probe:
                assert probe["tcpSocket"]["port"] in ports
        listens = {"worker": "STOOP_METRICS_PORT", "gateway": "STOOP_GATEWAY_PORT", "exporter": "STOOP_EXPORTER_PORT"}
        if container["name"] in listens:
            assert [str(port) for port in ports.values()] == [environment(container)[listens[container["name"]]]]


def test_redis_decides_nothing_about_the_life_of_a_pod() -> None:
    [gateway], [worker] = (containers_of(named("Deployment", f"stoop-{name}")) for name in ("gateway", "worker"))
    assert "httpGet" not in gateway["livenessProbe"], "the gateway's /healthz asks Redis"
    assert worker["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize(
    ("name", "variable"), [("worker", "STOOP_DRAIN_SECONDS"), ("gateway", "STOOP_GATEWAY_DRAIN_SECONDS")]
)
def test_the_grace_is_longer_than_the_drain(name: str, variable: str) -> None:
    one = named("Deployment", f"stoop-{name}")
    pod, [container] = pod_of(one), containers_of(one)
    drain = environment(container)[variable]
    assert pod is not None and drain is not None
    assert pod["terminationGracePeriodSeconds"] == int(drain) + 15


def test_a_new_worker_never_waits_for_the_gpu_of_an_old_one() -> None:
    worker = named("Deployment", "stoop-worker")
    [container] = containers_of(worker)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert worker["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    starts = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    assert worker["spec"]["progressDeadlineSeconds"] > starts >= 900
    assert "replicas" not in worker["spec"], "each `apply` would undo the autoscaler's number"


def test_selectors_find_the_pods_they_are_for() -> None:
    labels = {one["spec"]["template"]["metadata"]["labels"]["app"] for one in PODS.values()}
    for (_, kind, _, _), one in OBJECTS.items():
        for found in re.findall(r'"app": "([\w-]+)"', json.dumps(one)):
            assert found in labels, kind
        for values in re.findall(r'"key": "app", "operator": "In", "values": (\[.*?\])', json.dumps(one)):
            assert set(json.loads(values)) <= labels, kind


def test_targets_of_services_scalers_and_monitors_exist() -> None:
    for (_, kind, _, name), one in OBJECTS.items():
        if kind == "Service":
            [owner] = [pod for pod in PODS.values() if pod["metadata"]["name"] == name][:1]
            targets = {port["targetPort"] for port in one["spec"]["ports"]}
            assert targets <= {each["name"] for each in containers_of(owner)[0]["ports"]}
        if kind in ("ScaledObject", "HorizontalPodAutoscaler"):
            assert ("Deployment", "stoop", one["spec"]["scaleTargetRef"]["name"]) in EVERYTHING
        if kind in ("PodMonitor", "ServiceMonitor"):
            field = "podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"
            [container] = containers_of(named("Deployment", name))
            for endpoint in one["spec"][field]:
                assert endpoint["port"] in {port["name"] for port in container["ports"]}
                assert endpoint["path"] == "/metrics"


def test_everything_is_denied_first_and_only_known_ports_are_opened() -> None:
    deny = named("NetworkPolicy", "stoop-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    containers = [container for one in PODS.values() for container in containers_of(one)]
    known = {port["containerPort"] for container in containers for port in container["ports"]}
    for (_, kind, _, _), one in OBJECTS.items():
        if kind == "NetworkPolicy":
            for rule in one["spec"].get("ingress", []):
                assert rule["from"], "an empty list lets everybody in"
                assert {port["port"] for port in rule["ports"]} <= known


def test_the_readme_makes_every_key_of_every_secret() -> None:
    used = {key for one in OBJECTS.values() for key in secret_keys(one)} | {("stoop-api-keys", "keys.json")}
    commands = README.replace("\\\n", " ").splitlines()
    made = {
        (found[1], key)
        for command in commands
        if (found := re.search(r"create secret generic (\S+)", command))
        for key in re.findall(r"--from-(?:literal|file)=([\w.-]+?)=", command)
    }
    assert used == made
    roles = {"worker": "worker", "gateway": "client", "exporter": "operator", "triton": "client"}
    for name, role in roles.items():
        secret = f"stoop-redis-{role}"
        [container] = containers_of(named("Deployment", f"stoop-{name}", "triton" if name == "triton" else "gpu"))
        assert (secret, "url") in secret_keys(container), "each program has the Redis user of its own role"


def test_images_are_of_one_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    found = {container["image"] for one in PODS.values() for container in containers_of(one)}
    ours = {f"stoop-worker:{version[1]}{kind}" for kind in ("", "-cpu", "-gpu")} | {
        f"stoop-{name}:{version[1]}" for name in ("producer", "triton")
    }
    assert found == ours | {COMPOSE["services"]["redis"]["image"]}


def test_copies_are_like_their_originals() -> None:
    originals = {"redis.conf": "redis.conf", "users.acl": "redis/users-7.acl", "start.sh": "redis/start.sh"}
    for copied, original in originals.items():
        assert (FOLDER / "redis" / copied).read_text() == (ROOT / "deploy" / original).read_text()
    alerts = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())
    assert ALERTS.read_text() == as_resource(alerts), "run python -m deploy.kubernetes"


def test_the_scaler_reads_a_metric_that_the_exporter_has() -> None:
    [trigger] = named("ScaledObject", "stoop-worker", "scale-to-zero")["spec"]["triggers"]
    read = trigger["metadata"]
    assert METRICS[read["valueLocation"]].labels == (), "the scaler takes the first of several values"
    port = named("Service", "stoop-exporter")["spec"]["ports"][0]["port"]
    assert read["url"] == f"http://stoop-exporter.stoop.svc:{port}/metrics"
    assert int(read["targetValue"]) == WorkerConfig(model="moondream2").permits_on("cuda")
