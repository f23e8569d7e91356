//! Lines of an environment file with which the agent does not start, and words of what it says
//! of each. The agent's tests give them to the agent, and those of `tweed-install` to `check`.

pub const REFUSED: [(&str, &str); 15] = [
    ("TWEED_VNI=0", "'0' for '--vni <VNI>'"),
    ("TWEED_VNI=", "'--vni <VNI>'"),
    (
        "TWEED_VXLAN_PORT=65536",
        "'65536' for '--vxlan-port <PORT>'",
    ),
    ("TWEED_BACKEND=vxlna", "'vxlna' for '--backend"),
    ("TWEED_SERVICES=yes", "'yes' for '--services <on|off>'"),
    ("TWEED_SERVICES=", "'--services <on|off>'"),
    ("TWEED_ONCE=perhaps", "'perhaps' for '--once"),
    ("TWEED_NFT=", "'--nft <PROGRAM>'"),
    ("TWEED_RUN_DIR=run/tweed", "not an absolute path"),
    (
        "TWEED_CLUSTER_CIDR=10.244.1.0/16",
        "did you mean 10.244.0.0/16?",
    ),
    ("TWEED_LOG_LEVEL=loud=louder", "not a log filter"),
    ("TWEED_METRICS_ADDR=9116", "an address and a port"),
    ("TWEED_HEALTH_ADDR=127.0.0.1:9116", "are one address"),
    ("TWEED_NODES=/x\nTWEED_KUBECONFIG=/y", "cannot be used with"),
    (
        "TWEED_NODES=/x\nTWEED_METRICS_AUTH=token-review",
        "with --nodes there is none",
    ),
];
