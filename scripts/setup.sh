#!/bin/sh
# Prepares .venv with frazil and everything in requirements.lock, the jars in the cache, and Java's classes for quick starts.
# Needs Python 3.11 or later; uv is fetched when it is missing. Does nothing when nothing changed. PYTHON=... chooses the
# interpreter.
set -eu

cd "$(dirname "$0")/.."
root=$(pwd)
cache=${FRAZIL_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/frazil}
stamp=.venv/.frazil-setup
lock=.setup-lock
fresh=

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  say "$@"
  exit 1
}

# What the environment is made from. Its scripts hold the path of the tree, so a tree that moved is another one.
wanted() { printf '%s %s' "$(cat requirements.lock pyproject.toml scripts/setup.sh | cksum)" "$root"; }

is_ready() {
  [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ] && [ -x .venv/bin/frazil ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted)" ]
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or later."
    echo "$PYTHON"
    return
  fi
  for name in python3 python3.13 python3.12 python3.11 python; do
    if is_new_enough "$name"; then
      echo "$name"
      return
    fi
  done
}

# A pip that can be run without being installed: Python carries one for its own venv module.
run_pip() {
  if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip "$@"
    return
  fi
  wheel=$("$python" -c '
import ensurepip, glob, os
folders = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"), "/usr/share/python-wheels"]
print(next((wheel for folder in folders for wheel in glob.glob(os.path.join(folder, "pip-*.whl"))), ""))' 2>/dev/null) || wheel=
  [ -n "$wheel" ] || fail "uv is not installed, and this Python has no pip to fetch it with." \
    "Install uv (or the pip of your system, such as python3-pip) and run this again."
  "$python" "$wheel/pip" "$@"
}

find_uv() {
  for uv in uv "$cache/uv/bin/uv"; do
    if "$uv" --version >/dev/null 2>&1; then
      return
    fi
  done
  [ -n "$python" ] || fail "Python 3.11 or later was not found. Install it, or name it: make setup PYTHON=/path/to/python3"
  say "fetching uv into $cache/uv"
  mkdir -p "$cache"
  fresh=$(mktemp -d "$cache/uv-XXXXXX")
  PIP_ROOT_USER_ACTION=ignore run_pip --quiet --disable-pip-version-check install --require-hashes --only-binary :all: \
    --target "$fresh" --requirement scripts/uv.txt
  rm -rf "$cache/uv"
  mv "$fresh" "$cache/uv"
}

# One setup at a time: a second one waits, and a lock whose owner is gone is taken over.
take_lock() {
  until mkdir "$lock" 2>/dev/null; do
    owner=$(cat "$lock/pid" 2>/dev/null || echo)
    if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
      rm -rf "$lock"
    else
      sleep 1
    fi
  done
  trap 'rm -rf "$lock" "$fresh"' EXIT
  trap 'exit 130' INT TERM
  echo $$ >"$lock/pid"
}

origin() { "$1" -c 'import sys; print(sys.base_prefix, sys.version)'; }

fits() {
  is_new_enough .venv/bin/python || return 1
  [ -z "${PYTHON:-}" ] || [ "$(origin .venv/bin/python)" = "$(origin "$python")" ] || return 1
  [ ! -f "$stamp" ] || [ "$(cut -d' ' -f3- "$stamp")" = "$root" ]
}

install() {
  python=$(find_python)
  find_uv
  if ! fits; then
    rm -rf .venv
    # Without a Python that fits, uv looks further and may fetch one.
    "$uv" venv --quiet --python "${python:->=3.11}" .venv
  fi
  say "installing what requirements.lock names, with $("$uv" --version) for $(.venv/bin/python --version)"
  "$uv" pip sync --python .venv/bin/python --require-hashes --build-constraints requirements.lock requirements.lock
  # The build backend is in the lock too: nothing is fetched here.
  "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
  # The older name of the dlt destination, for what is written with it.
  "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable compat/dlt_iceberg
  wanted >"$stamp"
}

if ! is_ready; then
  take_lock
  is_ready || install
fi
.venv/bin/frazil setup avro postgres
