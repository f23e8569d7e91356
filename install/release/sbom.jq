# The bill of materials of a release in CycloneDX. Called by sbom.sh with:
#   $metadata   what `cargo metadata` prints, once for each processor
#   $linked     "NAME VERSION" of each crate in the programs, one a line
#   $lock       Cargo.lock, for the checksums
#   $debian     "ARCH NAME VERSION" of each Debian package in the image, one a line
#   $version, $commit, $time, $distribution, and $programs, the packages with the programs

def lines: split("\n") | map(select(. != ""));

# A UUID of version 8 that depends on what is described only.
def serial($hash):
    "urn:uuid:" + ([$hash[0:8], $hash[8:12], "8" + $hash[13:16], "8" + $hash[17:20], $hash[20:32]] | join("-"));

# Older crates separate licences by a slash.
def licence: if . == null then {} else {licenses: [{expression: gsub(" ?/ ?"; " OR ")}]} end;

def reference: if .source == null then "tweed/\(.name)@\(.version)" else "pkg:cargo/\(.name)@\(.version)" end;

def crate($checksums):
    {type: "library", "bom-ref": reference, name, version}
    + (if .description == null then {} else {description: (.description | gsub("\\s+"; " "))} end)
    + (.license | licence)
    # A crate that is in no registry has no address there.
    + (if .source == null then {} else {
        purl: reference,
        hashes: [{alg: "SHA-256", content: $checksums["\(.name) \(.version)"]}],
        externalReferences: [select(.repository != null) | {type: "vcs", url: .repository}]
      } end);

def debian_package:
    split(" ") as [$arch, $name, $version]
    | "pkg:deb/debian/\($name)@\($version | @uri)?arch=\($arch)&distro=\($distribution)" as $purl
    | {type: "library", "bom-ref": $purl, name: $name, version: $version, purl: $purl};

($linked | lines | map({(.): true}) | add) as $is_linked
| ([$lock | split("[[package]]\n")[1:][]
    | [capture("(?<key>name|version|checksum) = \"(?<value>[^\"]*)\""; "g")] | from_entries
    | {"\(.name) \(.version)": .checksum}] | add) as $checksums
| ([$metadata[].packages[] | select($is_linked["\(.name) \(.version)"])] | unique_by(.id)) as $crates
| ($crates | map({(.id): reference}) | add) as $references
| ($debian | lines | unique | map(debian_package)) as $packages
| ($programs | split(" ")) as $programs
| {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    serialNumber: serial($hash),
    version: 1,
    metadata: {
        timestamp: $time,
        component: {
            type: "application", "bom-ref": "tweed", name: "tweed", version: $version,
            description: "A pod network for Kubernetes, a CNI plugin and a node agent",
            licenses: [{expression: "Apache-2.0"}],
            externalReferences: [{type: "vcs", url: $repository}],
            properties: [{name: "tweed:commit", value: $commit}]
        }
    },
    components: (($crates | map(crate($checksums)) | sort_by(."bom-ref")) + $packages),
    dependencies: (
        [{ref: "tweed", dependsOn: (
            [$crates[] | select(.source == null and (.name as $name | $programs | index($name))) | reference]
            + ($packages | map(."bom-ref")) | sort)}]
        + ([$metadata[].resolve.nodes[] | select($references[.id])
            | {ref: $references[.id], dependsOn: [
                .deps[] | select(any(.dep_kinds[]; .kind == null)) | $references[.pkg] // empty]}]
           | group_by(.ref) | map({ref: .[0].ref, dependsOn: (map(.dependsOn[]) | unique)}))
    )
  }
