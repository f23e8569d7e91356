#!/bin/bash
# Process 1 of a node. `unshare` has created its mount, uts, ipc, pid and cgroup
# namespaces; the network namespace is the node's already.
#
#   node-init.sh NAME STATE
#
# NAME is the node's name, STATE its folder on a tmpfs. When everything is mounted
# it writes its process ID in the machine's PID namespace into STATE/pid.
set -euo pipefail
name=$1 state=$2

# Until the mount below, /proc is still that of the machine.
read -r outside_pid _ </proc/self/stat
# Written at the end, when STATE is no longer visible.
exec 3>"$state/pid"
mounted() { awk -v kind="$1" '$(NF - 2) == kind { print $5 }' /proc/self/mountinfo | sort -u; }
hierarchies=$(mounted cgroup)

hostname "$name"
mount -t proc proc /proc

# Files that differ from the machine's: sysctls that kubelet would otherwise write
# for the whole machine, and after a reboot the boot ID.
(cd "$state" && find proc -type f) | while read -r file; do
    mount --bind "$state/$file" "/$file"
done

# A /sys of the node's network namespace, and in it the cgroup hierarchies with the
# node's cgroup as their root.
mount -t sysfs sysfs /sys
if [ -n "$hierarchies" ]; then
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    for path in $hierarchies; do
        controllers=${path##*/}
        mkdir "/sys/fs/cgroup/$controllers"
        case $controllers in
            systemd) mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd ;;
            *) mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers" ;;
        esac
        # Programs look for each of two controllers in one hierarchy by its own name.
        for controller in ${controllers//,/ }; do
            [ -e "/sys/fs/cgroup/$controller" ] || ln -s "$controllers" "/sys/fs/cgroup/$controller"
        done
    done
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in cpu cpuset memory pids; do
        if ! grep --quiet --word-regexp "$controller" /sys/fs/cgroup/cgroup.controllers; then
            echo "kubelet needs the cgroup controller $controller, which this machine does not delegate:" \
                "as root, echo +$controller >/sys/fs/cgroup/cgroup.subtree_control"
            exit 1
        fi
    done
    # Only a cgroup without processes can delegate controllers.
    mkdir -p /sys/fs/cgroup/init
    echo 0 >/sys/fs/cgroup/init/cgroup.procs
    sed 's/[^ ]*/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi

# As systemd mounts it, where the kernel has it.
if [ -d /sys/fs/bpf ]; then mount -t bpf bpf /sys/fs/bpf; fi

# Everything that the node, its pods or an installer writes goes to STATE.
for folder in etc opt var/lib var/log; do
    layers=$state/overlay/$folder
    mkdir -p "$layers/upper" "$layers/work"
    mount -t overlay overlay \
        -o "lowerdir=/$folder,upperdir=$layers/upper,workdir=$layers/work" "/$folder"
done
# Folders in which the node must not see the machine's files. containerd also keeps
# overlays in its folder, which cannot be on an overlay itself.
for folder in etc/cni etc/containerd etc/kubernetes opt/cni \
    var/lib/cni var/lib/containerd var/lib/kubelet var/log/containers var/log/pods; do
    mkdir -p "/$folder" "$state/own/$folder"
    mount --bind "$state/own/$folder" "/$folder"
done
cp "$state/hosts" /etc/hosts

# Mounts below /run were copied into this mount namespace. A copy would keep a tmpfs
# or a network namespace alive after it is removed on the machine.
awk '$5 ~ "^/run/" { print $5 }' /proc/self/mountinfo | sort -r | while read -r path; do
    # It is unmounted by the kernel when its file on the machine is deleted, which
    # can happen at any time.
    umount --lazy "$path" 2>/dev/null || ! mountpoint --quiet "$path"
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns /run/node
mount --make-rshared /

echo "$outside_pid" >&3
exec 3>&-
# While bash waits for this child, it also reaps every orphan.
while :; do sleep 86400; done
