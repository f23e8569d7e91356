# The images that pods of a test cluster run, without a registry. Sourced by setup.sh.
#
# Each image is an archive in the OCI image layout with one layer. The layer is not
# compressed, because it is only read from this disk, and has no time stamps, so that the
# same files always result in the same image.

images=$tools/kubernetes/images

make_images() {
    local step=images inputs names=(pause busybox coredns agnhost) name files=()
    inputs=$(cat "$conformance/setup/images.sh" "$tools"/stamps/go-{kubernetes,clients} | sha256sum)
    for name in "${names[@]}"; do
        files+=("$images/$name.tar")
    done
    done_before "$step" "$inputs" "${files[@]}" && return
    say "making the images $(printf '%s, ' "${names[@]}" | sed 's/, $//') in ${tools#"$root"/}/kubernetes/images (busybox, curl, nc from Debian)"
    scratch_folder
    mkdir -p "$images"
    unpack_packages "$scratch/busybox" busybox-static
    for name in "${names[@]}"; do
        "image_of_$name" "$scratch/$name.root"
    done
    mark_done "$step" "$inputs"
}

# The program of a sandbox, which waits and reaps orphans.
image_of_pause() {
    local folder=$1 source
    find_go
    source=$(cd "$modules/kubernetes" && "$go" list -mod=readonly -m -f '{{.Dir}}' k8s.io/kubernetes)
    mkdir -p "$folder"
    cc -Os -static -s -DVERSION=v3.10.1 -o "$folder/pause" "$source/build/pause/linux/pause.c"
    oci_archive "$images/pause.tar" registry.k8s.io/pause:3.10.1 "$folder" \
        '"Entrypoint":["/pause"],"User":"65535:65535"'
}

image_of_busybox() {
    local folder=$1
    base_files "$folder"
    add_busybox "$folder"
    oci_archive "$images/busybox.tar" localhost/busybox:lab "$folder" '"Cmd":["sh"]'
}

image_of_coredns() {
    local folder=$1
    base_files "$folder"
    install -D "$tools/kubernetes/bin/coredns" "$folder/coredns"
    oci_archive "$images/coredns.tar" \
        "registry.k8s.io/coredns/coredns:v$(module_version "$modules/clients" github.com/coredns/coredns)" \
        "$folder" '"Entrypoint":["/coredns"]'
}

# The test server and client of Kubernetes. Tests also need curl, an nc with -u, and a
# shell that is not busybox.
image_of_agnhost() {
    local folder=$1
    base_files "$folder"
    unpack_tree "$folder" curl dash netcat-openbsd
    rm -rf "$folder"/usr/share/{doc,info,lintian,locale,man} "$folder"/var/lib/dpkg "$folder"/usr/lib/*/gconv
    ln -sf nc.openbsd "$folder/usr/bin/nc"
    ln -sf dash "$folder/usr/bin/sh"
    add_busybox "$folder"
    install -D "$tools/kubernetes/bin/agnhost" "$folder/agnhost"
    oci_archive "$images/agnhost.tar" localhost/agnhost:lab "$folder" \
        '"Entrypoint":["/agnhost"],"Cmd":["pause"]'
}

# The folders that programs expect, as in Debian, and the files of users and groups.
base_files() {
    local folder=$1
    mkdir -p "$folder"/{dev,etc,proc,root,run,sys,tmp,var}
    chmod 1777 "$folder/tmp"
    merged_usr "$folder"
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$folder/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$folder/etc/group"
}

# Debian's static busybox, under all of its names that no other program has.
add_busybox() {
    local folder=$1 applet
    install "$scratch/busybox/usr/bin/busybox" "$folder/usr/bin/busybox"
    "$folder/usr/bin/busybox" --list | while read -r applet; do
        [ -n "$(PATH=$folder/usr/bin:$folder/usr/sbin type -P "$applet")" ] ||
            ln -s busybox "$folder/usr/bin/$applet"
    done
}

# oci_archive FILE NAME FOLDER CONFIG: an image of one layer, made of a folder.
# CONFIG is the inner part of the JSON object `config` of the OCI image format.
oci_archive() {
    local file=$1 name=$2 folder=$3 config=$4 layout architecture layer reference
    local type=application/vnd.oci.image
    architecture=$(dpkg --print-architecture)
    layout=$(mktemp -d "$scratch/layout.XXXXXX")
    mkdir -p "$layout/blobs/sha256"

    reproducible_tar "$folder" "$layout/layer"
    layer=$(add_blob "$layout" layer)
    printf '{"architecture":"%s","os":"linux","config":{%s,"WorkingDir":"/","Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
        "$architecture" "$config" "$(sed -E 's/^"digest":("[^"]*").*/\1/' <<<"$layer")" >"$layout/config"
    reference=$(add_blob "$layout" config)
    printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json",%s},"layers":[{"mediaType":"%s.layer.v1.tar",%s}]}' \
        "$type" "$type" "$reference" "$type" "$layer" >"$layout/manifest"
    reference=$(add_blob "$layout" manifest)
    # containerd reads the name from the first annotation, other programs from the second.
    printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s.manifest.v1+json",%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
        "$type" "$reference" "$architecture" "$name" "$name" >"$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"

    reproducible_tar "$layout" "$file.new"
    mv "$file.new" "$file"
    rm -r "$layout"
}

reproducible_tar() {
    tar --create --file "$2" --directory "$1" --format=gnu --sort=name \
        --mtime=@0 --owner=0 --group=0 --numeric-owner .
}

# Renames a file of the layout to its hash, and prints the reference to it.
add_blob() {
    local layout=$1 file=$1/$2 digest
    digest=$(sha256sum "$file" | cut -d ' ' -f 1)
    printf '"digest":"sha256:%s","size":%s' "$digest" "$(stat --format=%s "$file")"
    mv "$file" "$layout/blobs/sha256/$digest"
}
