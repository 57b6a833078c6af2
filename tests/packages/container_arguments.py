#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a runtime would start for a container of docs/containers, as arguments of container.sh.

container_arguments.py DOCKERFILE MANIFEST NAME VOLUMES     each argument ends with a NUL

NAME is a service of a Compose file or a container of a pod, also an init container. The volume v is
the directory VOLUMES/v. Of a pod's command only what the manifest says is used; what it omits is
the image's, as is what a service omits.
"""

import pathlib
import sys

import yaml

sys.dont_write_bytecode = True
import dockerfile  # noqa: E402

FIELDS = {"spec.nodeName": "node-1", "metadata.uid": "6f1c3cf2-0000-4000-8000-000000000001"}


def run_as(uid, gid, groups=()):
    return ["--user", f"{uid}:{gid}", *(word for group in groups for word in ("--group", str(group)))]


def of_service(image, service, volumes):
    uid, gid = image.user
    if "user" in service:
        uid, gid = service["user"].split(":")
    yield from run_as(uid, gid, service.get("group_add", ()))
    if service.get("read_only"):
        yield "--read-only"
    # Without this, a runtime keeps a set of capabilities, which a user other than root does not get.
    assert service["cap_drop"] == ["ALL"], "the test cannot start a container with capabilities"
    for volume in service.get("volumes", ()):
        source, _, rest = volume.partition(":")
        yield from ("--volume", f"{volumes / source}:{rest}")
    for name, value in service.get("environment", {}).items():
        yield from ("--environment", f"{name}={value}")
    yield from ("--", *service.get("entrypoint", image.entrypoint), *service.get("command", ()))


def of_container(image, pod, container, volumes):
    context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    uid, gid = image.user
    groups = [*pod.get("securityContext", {}).get("supplementalGroups", ())]
    if "fsGroup" in context:
        groups.append(context["fsGroup"])
    uid = context.get("runAsUser", uid)
    yield from run_as(uid, context.get("runAsGroup", gid if uid == image.user[0] else 0), groups)
    if context.get("readOnlyRootFilesystem"):
        yield "--read-only"
    capabilities = context["capabilities"]
    assert capabilities["drop"] == ["ALL"], "the test cannot start a container with capabilities"
    for capability in capabilities.get("add", ()):
        yield from ("--capability", capability.lower())
    for mount in container.get("volumeMounts", ()):
        mode = ":ro" if mount.get("readOnly") else ""
        yield from ("--volume", f"{volumes / mount['name']}:{mount['mountPath']}{mode}")
    for variable in container.get("env", ()):
        value = FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        yield from ("--environment", f"{variable['name']}={value}")
    yield from ("--", *container.get("command", image.entrypoint), *container.get("args", ()))


def arguments(image, document, name, volumes):
    """None if the document has no such container."""
    if name in document.get("services", ()):
        return of_service(image, document["services"][name], volumes)
    if "services" in document:
        return None
    pod = document["spec"]["template"]["spec"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if container["name"] == name:
            return of_container(image, pod, container, volumes)
    return None


def main():
    recipe, manifest, name, volumes = sys.argv[1:]
    image = dockerfile.Image(pathlib.Path(recipe).read_text(encoding="utf-8"))
    for document in yaml.safe_load_all(pathlib.Path(manifest).read_text(encoding="utf-8")):
        found = arguments(image, document, name, pathlib.Path(volumes))
        if found is not None:
            sys.stdout.write("".join(f"{argument}\0" for argument in found))
            return
    sys.exit(f"container_arguments.py: {manifest} has no container '{name}'")


if __name__ == "__main__":
    main()
