#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manifests.py ROOT: in docs/containers programs share /run/idd with idd, read-only, and nothing else, no manifest needs an
image that cannot be had (those of Compose are built, those of Kubernetes are names of example.org to be replaced), and the
manifests agree with the Dockerfile: name and version of the image, user ids, volumes, commands and probes."""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "packages"))
import dockerfile  # noqa: E402

try:
    import yaml
except ImportError:
    print("python3-yaml is not installed")
    sys.exit(77)

FOLDER = "/run/idd"
OF_IDD = {FOLDER, "/var/lib/idd"}
SHARED_BY_COMPOSE = ("ipc", "pid", "userns_mode", "network_mode", "privileged", "cgroup", "devices")
SHARED_BY_POD = ("hostIPC", "hostPID", "hostNetwork", "shareProcessNamespace")


# What an init container needs to give root's directories to user idd, and nothing else.
FOR_DIRECTORIES = {"CHOWN", "FOWNER"}
# The comment of the Dockerfile that names the image.
BUILD = re.compile(r"^#\s+docker build --tag (\S+) --file (\S+) \.$", re.M)


class Recipe:
    """The Dockerfile, as far as manifests must agree with it."""

    def __init__(self, folder):
        text = (folder / "Dockerfile").read_text(encoding="utf-8")
        self.image = dockerfile.Image(text)
        self.uid, self.gid = self.image.user
        build = BUILD.search(text)
        if build is None:
            raise dockerfile.DockerfileError("has no comment that says how to build it")
        self.name = build[1]

    def check(self):
        """Findings about the recipe itself."""
        if self.uid == 0 or self.gid == 0:
            yield "the image's user is root"
        first, last = self.image.stages[0], self.image.last
        if not any(keyword == "RUN" and value.startswith("scripts/package") for keyword, value in first):
            yield "the first stage does not build the packages"
        if [value.split()[0] for keyword, value in last if keyword == "COPY"] != ["--from=build"]:
            yield "the image has files that are not from the packages"
        run = " ".join(self.image.values("RUN"))
        for number, command in ((self.uid, rf"useradd .*--uid {self.uid} .*\bidd\b"),
                                (self.gid, rf"groupadd .*--gid {self.gid} .*\bidd\b")):
            if not re.search(command, run):
                yield f"no command gives {number} to idd"
        if set(self.image.volumes) != OF_IDD:
            yield f"the volumes are {self.image.volumes}"

    def check_words(self, name, words):
        """`words`: what follows the entrypoint."""
        if not words or not str(words[0]).startswith("--"):
            yield f"{name}: {words} are not options for the entrypoint {self.image.entrypoint}"


def check_version(root, recipe):
    """The image is named after the project's version."""
    path = root / "CMakeLists.txt"
    version = re.search(r"^project\([^)]*?VERSION\s+([0-9.]+)", path.read_text(encoding="utf-8"), re.M) if path.is_file() else None
    if version is not None and recipe.name.partition(":")[2] != version[1]:
        yield f"the image's version in {recipe.name} is not the project's, {version[1]}"


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


def check_service_of_idd(service, recipe):
    if service["image"] != recipe.name:
        yield f"idd has the image {service['image']}; the Dockerfile's is {recipe.name}"
    if str(service.get("user", f"{recipe.uid}:{recipe.gid}")) != f"{recipe.uid}:{recipe.gid}":
        yield f"idd runs as {service['user']}; the Dockerfile's user is {recipe.uid}:{recipe.gid}"
    if "entrypoint" in service:
        yield "idd has another entrypoint than the image"
    yield from recipe.check_words("idd", service.get("command", ()))
    if {mount[1] for mount in compose_mounts(service)} != set(recipe.image.volumes):
        yield "idd does not have the volumes of the Dockerfile"
    test = service.get("healthcheck", {}).get("test", ["CMD", *recipe.image.health_check])
    if test[1:] != recipe.image.health_check:
        yield f"idd's probe is {test}; the Dockerfile's is {recipe.image.health_check}"


def check_compose(document, path, recipe):
    yield from check_service_of_idd(document["services"]["idd"], recipe)
    for name, service in document["services"].items():
        if name == "idd":
            continue
        if str(recipe.gid) not in service.get("group_add", ()):
            yield f"{name} is not a member of group {recipe.gid}"
        if str(service.get("user", "0")).split(":")[0] in ("0", str(recipe.uid)):
            yield f"{name} runs as a user that may administer idd"
    images = list(built_images(document, path))
    yield from (f"{name} is built from a Dockerfile that does not exist" for name, image in images if image is None)
    for name, service in document["services"].items():
        if service["image"] not in [image for _, image in images]:
            yield f"{name} has the image {service['image']}, which the file does not build"
        yield from (f"{name} has '{key}'" for key in SHARED_BY_COMPOSE if key in service)
        yield from check_mounts(name, [mount[1:] for mount in compose_mounts(service)])
        if service.get("cap_drop") != ["ALL"]:
            yield f"{name} keeps capabilities"


def check_container_of_idd(container, recipe):
    name, version = container["image"].removeprefix("example.org/"), recipe.name
    if name != version:
        yield f"idd has the image {name}; the Dockerfile's is {version}"
    context = container.get("securityContext", {})
    if (context.get("runAsUser"), context.get("runAsGroup")) != (recipe.uid, recipe.gid):
        yield f"idd does not run as {recipe.uid}:{recipe.gid}, the Dockerfile's user"
    if context.get("runAsNonRoot") is not True:
        yield "idd may run as root"
    if "command" in container:
        yield "idd has another entrypoint than the image"
    yield from recipe.check_words("idd", container.get("args", ()))
    probe = container.get("readinessProbe", {}).get("exec", {}).get("command")
    if probe != recipe.image.health_check:
        yield f"idd's probe is {probe}; the Dockerfile's is {recipe.image.health_check}"
    if not set(recipe.image.volumes) <= {mount["mountPath"] for mount in container.get("volumeMounts", ())}:
        yield "idd does not have the volumes of the Dockerfile"


def check_init_container(container, recipe):
    """It may only give the directories to idd."""
    if container["image"].removeprefix("example.org/") != recipe.name:
        yield f"{container['name']} has the image {container['image']}, not idd's"
    capabilities = container.get("securityContext", {}).get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or not set(capabilities.get("add", ())) <= FOR_DIRECTORIES:
        yield f"{container['name']} keeps capabilities"
    for mount in container.get("volumeMounts", ()):
        if mount["mountPath"] not in recipe.image.volumes:
            yield f"{container['name']} has {mount['mountPath']}"


def check_groups(pod, recipe):
    """A program's group, and the group that a secret is readable for."""
    context = pod.get("securityContext", {})
    for container in pod["containers"]:
        groups = [context.get("fsGroup"), *context.get("supplementalGroups", ())]
        if recipe.gid not in groups:
            yield f"{container['name']} is not a member of group {recipe.gid}"
        uid = container.get("securityContext", {}).get("runAsUser", context.get("runAsUser", 0))
        if container["name"] != "idd" and uid in (0, recipe.uid):
            yield f"{container['name']} runs as a user that may administer idd"
    for volume in pod.get("volumes", ()):
        if "secret" in volume and volume["secret"].get("defaultMode") != 0o440:
            yield f"the secret {volume['name']} is not readable for its group alone"


def check_container(container, shared):
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or "add" in capabilities or context.get("privileged"):
        yield f"{container['name']} keeps capabilities"
    mounts = [(mount["mountPath"], mount.get("readOnly", False))
              for mount in container.get("volumeMounts", ()) if mount["name"] in shared]
    yield from check_mounts(container["name"], mounts)


def check_pod(pod, text, recipe):
    yield from check_groups(pod, recipe)
    for container in pod.get("initContainers", ()):
        yield from check_init_container(container, recipe)
    for container in pod["containers"]:
        if container["name"] == "idd":
            yield from check_container_of_idd(container, recipe)
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


def check(path, recipe):
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    if not documents:
        yield "is empty"
    for document in documents:
        if "services" in document:
            yield from check_compose(document, path, recipe)
        else:
            yield from check_pod(document["spec"]["template"]["spec"], path.read_text(encoding="utf-8"), recipe)


def main():
    folder = pathlib.Path(sys.argv[1], "docs", "containers")
    files = sorted(folder.glob("*.yaml"))
    if not files:
        print(f"{folder}: has no manifests")
        return 1
    try:
        recipe = Recipe(folder)
    except (OSError, ValueError) as error:
        print(f"{folder / 'Dockerfile'}:1: {error}")
        return 1
    findings = [f"{folder / 'Dockerfile'}:1: {finding}"
                for finding in (*recipe.check(), *check_version(folder.parent.parent, recipe))]
    for path in files:
        try:
            findings += [f"{path}:1: {finding}" for finding in check(path, recipe)]
        except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            findings.append(f"{path}:1: not a manifest: {error!r}")
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
