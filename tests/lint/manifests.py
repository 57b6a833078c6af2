#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manifests.py ROOT: in docs/containers programs share /run/idd with idd, read-only, and nothing else, and no manifest needs an
image that cannot be had: those of Compose are built, those of Kubernetes are names of example.org to be replaced."""

import pathlib
import sys

try:
    import yaml
except ImportError:
    print("python3-yaml is not installed")
    sys.exit(77)

FOLDER = "/run/idd"
OF_IDD = {FOLDER, "/var/lib/idd"}
SHARED_BY_COMPOSE = ("ipc", "pid", "userns_mode", "network_mode", "privileged", "cgroup", "devices")
SHARED_BY_POD = ("hostIPC", "hostPID", "hostNetwork", "shareProcessNamespace")


def compose_mounts(service):
    """The (source, path, is_read_only) of each volume, in the short form."""
    for volume in service.get("volumes", ()):
        source, path, *mode = str(volume).split(":")
        yield source, path, mode == ["ro"]


def check_mounts(name, mounts):
    """`mounts`: the mounts that the container may share with others, as (path, is_read_only)."""
    if name == "idd":
        for path, _ in mounts:
            if path not in OF_IDD:
                yield f"idd shares {path}"
        return
    if list(mounts) != [(FOLDER, True)]:
        yield f"{name} shares {list(mounts)}, not {FOLDER} alone and read-only"


def built_images(document, path):
    """The images that the file builds from a Dockerfile that exists."""
    for name, service in document["services"].items():
        if "build" not in service:
            continue
        build = service["build"]
        if not (path.parent / build["context"] / build["dockerfile"]).is_file():
            yield name, None
        yield name, service["image"]


def check_compose(document, path):
    images = list(built_images(document, path))
    yield from (f"{name} is built from a Dockerfile that does not exist" for name, image in images if image is None)
    for name, service in document["services"].items():
        if service["image"] not in [image for _, image in images]:
            yield f"{name} has the image {service['image']}, which the file does not build"
        yield from (f"{name} has '{key}'" for key in SHARED_BY_COMPOSE if key in service)
        yield from check_mounts(name, [mount[1:] for mount in compose_mounts(service)])
        if service.get("cap_drop") != ["ALL"]:
            yield f"{name} keeps capabilities"


def check_container(container, shared):
    context = container.get("securityContext", {})
    if context.get("capabilities", {}).get("drop") != ["ALL"] or context.get("privileged"):
        yield f"{container['name']} keeps capabilities"
    mounts = [(mount["mountPath"], mount.get("readOnly", False))
              for mount in container.get("volumeMounts", ()) if mount["name"] in shared]
    yield from check_mounts(container["name"], mounts)


def check_pod(pod, text):
    for container in pod["containers"]:
        image = container["image"]
        if not image.startswith("example.org/"):
            yield f"{container['name']} has the image {image}, which is no name of example.org"
    if "Dockerfile" not in text:
        yield "does not say where the image of idd comes from"
    yield from (f"the pod has '{key}'" for key in SHARED_BY_POD if pod.get(key))
    shared = set()
    for volume in pod.get("volumes", ()):
        if "secret" not in volume:
            shared.add(volume["name"])
        path = volume.get("hostPath", {}).get("path", FOLDER)
        if path not in OF_IDD:
            yield f"{path} of the node is shared"
    for container in pod["containers"]:
        yield from check_container(container, shared)


def check(path):
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    if not documents:
        yield "is empty"
    for document in documents:
        if "services" in document:
            yield from check_compose(document, path)
        else:
            yield from check_pod(document["spec"]["template"]["spec"], path.read_text(encoding="utf-8"))


def main():
    folder = pathlib.Path(sys.argv[1], "docs", "containers")
    files = sorted(folder.glob("*.yaml"))
    if not files:
        print(f"{folder}: has no manifests")
        return 1
    findings = []
    for path in files:
        try:
            findings += [f"{path}:1: {finding}" for finding in check(path)]
        except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            findings.append(f"{path}:1: not a manifest: {error!r}")
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
