#!/usr/bin/env bash
# Builds the images stoop-producer, stoop-worker and, if asked, stoop-triton from their Dockerfiles, and prints the time
# and the size of each.
#
#   make images                          with docker if its daemon answers, else podman, else buildah
#   make images ENGINE=buildah           with this one
#   make images EXTRA=gpu                the worker's image for NVIDIA GPUs
#   make images TRITON=tritonserver:26.07-py3
#                                        stoop-triton too, on this image of Triton: see deploy/triton/README.md
#   make images BASE=debian              where no registry of images can be reached: first make the base image from
#                                        Debian's packages (needs root, Debian, debootstrap and buildah)
#   make images PIP=host                 install with this machine's configuration of pip: its index, certificates and
#                                        folders of packages
#
# PIP=host and BASE=debian need podman or buildah for the build. BUILD_FLAGS is passed on to it. Where the kernel allows
# no namespaces, set BUILDAH_ISOLATION=chroot; it is the default of a buildah without crun and runc.
set -euo pipefail
cd "$(dirname "$0")/.."

choose_engine() {
  if docker info >/dev/null 2>&1; then echo docker; return; fi
  for engine in podman buildah; do
    if command -v "$engine" >/dev/null; then echo "$engine"; return; fi
  done
  echo "No docker daemon answers, and neither podman nor buildah is installed: install one of the three." >&2
  return 1
}

# Prints mounts of everything that pip reads on this machine.
pip_mounts() {
  {
    python3 -m pip config debug | sed -n 's/^ *\(\/.*\), exists: True.*/\1/p'
    python3 -m pip config list | grep -oE "/[A-Za-z0-9._/-]+" | sed 's#^//*#/#; s#/simple$##'
    echo /etc/ssl/certs
  } | sort -u | while read -r path; do
    if [ -e "$path" ]; then printf -- '--volume %s:%s:ro ' "$path" "$path"; fi
  done
}

# Makes the base image of the Dockerfiles from Debian's packages, for the Python of this Debian.
make_base() {
  local folder mirror codename container
  folder=$(mktemp -d)
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources | head -1)
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates \
    "$codename" "$folder" "$mirror" >/dev/null
  ln -sf python3 "$folder/usr/bin/python"
  rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$folder" / >/dev/null
  buildah commit --quiet "$container" "docker.io/library/python:$1-slim" >/dev/null
  buildah rm "$container" >/dev/null
  rm -rf "$folder"
}

build() {
  local engine=$1 file=$2 tag=$3 began=$SECONDS size
  shift 3
  "$engine" build --tag "$tag" --file "$file" "${flags[@]}" "$@" .
  case $engine in
    buildah) size=$(buildah images --format '{{.Size}}' "$tag" | head -1) ;;
    *) size=$("$engine" image ls --format '{{.Size}}' "$tag" | head -1) ;;
  esac
  built+=("$(printf '%-16s %4d s  %s' "$tag" $((SECONDS - began)) "$size")")
}

engine=${ENGINE:-$(choose_engine)}
if [ "$engine" = docker ] && [ -n "${PIP:-}${BASE:-}" ]; then
  echo "docker can neither mount folders into a build nor see images of buildah: add ENGINE=podman or ENGINE=buildah." >&2
  exit 2
fi
if [ "$engine" = buildah ] && ! command -v crun >/dev/null && ! command -v runc >/dev/null; then
  export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
fi
extra=${EXTRA:-worker}
built=()
read -ra flags <<<"${BUILD_FLAGS:-}"
if [ "${PIP:-}" = host ]; then
  read -ra mounts <<<"$(pip_mounts)"
  flags+=("${mounts[@]}" --env "PIP_CERT=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}")
fi
if [ "${BASE:-}" = debian ]; then
  python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  buildah inspect --type image "docker.io/library/python:$python-slim" >/dev/null 2>&1 || make_base "$python"
  flags+=(--build-arg "PYTHON=$python" --pull=never)
fi
build "$engine" deploy/producer.Dockerfile stoop-producer
build "$engine" deploy/worker.Dockerfile "stoop-worker:$([ "$extra" = gpu ] && echo gpu || echo cpu)" --build-arg "EXTRA=$extra"
if [ -n "${TRITON:-}" ]; then
  build "$engine" deploy/triton.Dockerfile stoop-triton --build-arg "TRITON=$TRITON"
fi
printf '%s\n' "${built[@]}"
