#!/usr/bin/env bash
# Adds a version of Kubernetes to those that `make e2e-full` also runs on:
#
#   conformance/kubernetes/other-versions/add.sh 1.37.2
#
# It writes the Go module of that version into a folder of its name; to drop a version,
# remove its folder. Needs a Go that is at least as new as the version's go.mod requires,
# and the network.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${1:?usage: $0 VERSION, for example 1.37.2}
fail() {
    printf 'add: %s\n' "$*" >&2
    exit 1
}
staging=v0.${version#1.}
folder=$here/$version

# The libraries of a release are modules of their own with the version 0.MINOR.PATCH, and
# Kubernetes itself names them by folders of its repository.
json=$(cd / && go mod download -json "k8s.io/kubernetes@v$version") ||
    fail "could not download Kubernetes $version: $json"
upstream=$(printf '%s\n' "$json" | sed -nE 's/^[[:space:]]*"Dir": "(.*)",?$/\1/p')
[ -d "$upstream" ] || fail "the module of Kubernetes $version is not where Go says: '$upstream'"
# Beside the others, because the link in it is relative.
draft=$here/.$version
trap 'rm -rf "$draft"' EXIT
rm -rf "$draft"
mkdir "$draft"
main=../../kubernetes/main.go
if grep -q '^func NewKubeletCommand() ' "$upstream/cmd/kubelet/app/server.go"; then
    # It takes no context yet.
    sed -e 's/NewKubeletCommand(context.Background())/NewKubeletCommand()/' -e '/^\t"context"$/d' \
        "$here/${main#../}" >"$draft/main.go"
else
    ln -s "$main" "$draft/main.go"
fi
{
    printf 'module tweed/conformance/kubernetes/other-versions/%s\n\n' "$version"
    sed -nE '/^go /{p;a\

};/^godebug default/{p;a\

}' "$upstream/go.mod"
    printf 'require (\n'
    grep -E '^[[:space:]]+github.com/spf13/cobra ' "$upstream/go.mod"
    printf '\tk8s.io/%s %s\n' component-base "$staging" kubectl "$staging"
    printf '\tk8s.io/kubernetes v%s\n)\n\nreplace (\n' "$version"
    sed -nE "s,^[[:space:]]+(k8s.io/[a-z0-9-]+) => ./staging.*,\t\1 => \1 $staging,p" "$upstream/go.mod"
    printf ')\n'
} >"$draft/go.mod"
(cd "$draft" && GOFLAGS=-mod=mod go mod tidy) || fail "'go mod tidy' failed for Kubernetes $version (its output is above)"
rm -rf "$folder"
mv "$draft" "$folder"
