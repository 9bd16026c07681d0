"""The objects that a kustomization describes, for the few of kustomize's features that ours use.

`test_kubernetes.py` compares them with those of the real kustomize, where that is installed.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Object", "build", "containers_of", "key_of", "pod_of"]

Object = dict[str, Any]

_KNOWN = {"apiVersion", "kind", "namespace", "resources", "images", "patches", "configMapGenerator"}
_CLUSTER_WIDE = {"Namespace"}
# the field by which the elements of a list are the same, in Kubernetes's own merging of patches
_MERGE_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "name"}


def build(folder: Path) -> list[Object]:
    """Return the objects of a folder with a kustomization.yaml."""
    spec = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(spec) <= _KNOWN, "teach `build` the other fields first"
    objects: list[Object] = []
    for resource in spec.get("resources", []):
        path = folder / resource
        objects += build(path) if path.is_dir() else _read(path)
    for generated in spec.get("configMapGenerator", []):
        data = {name: (folder / name).read_text(encoding="utf-8") for name in generated["files"]}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
    for one in objects if "namespace" in spec else []:
        if one["kind"] not in _CLUSTER_WIDE:
            one["metadata"]["namespace"] = spec["namespace"]
    for given in spec.get("patches", []):
        for patch in _read(folder / given["path"]):
            [at] = [i for i, one in enumerate(objects) if key_of(one) == key_of(patch)]
            objects[at] = _merged(objects[at], patch)
    for image in spec.get("images", []):
        for container in (container for one in objects for container in containers_of(one)):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['name']}:{image['newTag']}"
    return objects


def key_of(one: Object) -> tuple[str, str, str]:
    """Return the fields that distinguish an object from every other."""
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def pod_of(one: Object) -> Object | None:
    """Return the specification of the pods that an object makes, None for objects of other kinds."""
    pod: Object | None = one.get("spec", {}).get("template", {}).get("spec")
    return pod


def containers_of(one: Object) -> list[Object]:
    """Return the containers of an object's pods."""
    pod = pod_of(one)
    return [] if pod is None else pod["containers"]


def _read(path: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def _merged(old: Any, new: Any, name: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        both = {key: _merged(old[key], value, key) if key in old else value for key, value in new.items()}
        return {**copy.deepcopy(old), **both}
    if isinstance(old, list) and name in _MERGE_KEYS:
        key = _MERGE_KEYS[name]
        changes = {one[key]: one for one in new}
        kept = [_merged(one, changes.pop(one[key])) if one[key] in changes else one for one in old]
        return [*changes.values(), *kept]
    return new
