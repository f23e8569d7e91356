//! Nodes that lack what the fast path needs: they say what, and all else is as without it.

use tweed_lab::{LabError, wait_until};

use super::datagrams::Far;
use super::life::attached;
use super::scene::{LIMIT, Pods, Scene, agent};

/// Something that an agent lacks.
struct Lack {
    /// The agent is started by it; `BPFFS` is where the node's is.
    script: &'static str,
    mode: &'static str,
    /// As metrics have it.
    word: &'static str,
    /// What people are told to be missing.
    says: &'static str,
}

/// It lacks nothing of this: it needs no CAP_SYS_ADMIN, which includes all rights of bpf(2).
const NOTHING: Lack = Lack {
    script: "set -- setpriv --bounding-set -sys_admin \"$@\"",
    mode: "auto",
    word: "",
    says: "",
};

/// In an order in which each meets what another one needs: values of conntrack that are not
/// set yet, and programs that an agent of before has left, where it can still remove them.
const LACKS: [Lack; 8] = [
    Lack {
        script: "mount --bind /proc/sys/net/netfilter /proc/sys/net/netfilter; \
                 mount -o remount,bind,ro /proc/sys/net/netfilter",
        mode: "auto",
        word: "sysctl",
        says: "nf_conntrack_tcp_be_liberal",
    },
    NOTHING,
    Lack {
        script: "mount -t tmpfs none /sys/kernel/btf",
        mode: "on",
        word: "no-btf",
        says: "this kernel has no BTF",
    },
    Lack {
        script: "mount -t tmpfs none BPFFS",
        mode: "auto",
        word: "no-bpffs",
        says: "is in no mounted bpffs",
    },
    NOTHING,
    Lack {
        script: "set -- setpriv --bounding-set -bpf,-sys_admin \"$@\"",
        mode: "auto",
        word: "not-permitted",
        says: "CAP_BPF",
    },
    NOTHING,
    Lack {
        script: "set -- setpriv --bounding-set -perfmon,-sys_admin \"$@\"",
        mode: "on",
        word: "not-permitted",
        says: "CAP_PERFMON",
    },
];

/// Waits until node 1 says everywhere what it lacks.
fn says(scene: &Scene, lack: &Lack) -> Result<(), LabError> {
    let active = f64::from(u8::from(lack.word.is_empty()));
    let metric = format!("tweed_fast_path_active{{why=\"{}\"}}", lack.word);
    let node = &scene.cluster[1].node;
    let program = scene.cluster.lab().programs().own("tweedctl")?;
    wait_until(lack.script, LIMIT, || {
        let agent = agent(&scene.cluster, 1);
        let value = agent.metric(&metric).map_err(|error| error.chain())?;
        let (code, ready) = agent.get("/readyz").map_err(|error| error.chain())?;
        let state = std::fs::read_to_string(node.run_dir().join("agent.json")).unwrap();
        let mut command = node.netns().command(&program);
        command.args(["status", "--run-dir"]).arg(node.run_dir());
        // It ends with an error where there is a problem.
        let status = command.output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        let is_said = [&ready, &state, &status]
            .iter()
            .all(|text| text.contains(lack.says));
        if value == Some(active) && code == 200 && is_said {
            return Ok(());
        }
        Err(format!(
            "{value:?}, {code} {ready}\n{state}\n{status}\n{}",
            scene.all(1)
        ))
    })
}

/// A server on node 1, to which datagrams come, and whose agent is started again and again.
struct Node {
    scene: Scene,
    far: Far,
}

impl Node {
    /// Its agent has no fast path; the other node has it, if it can.
    fn new() -> Result<Self, LabError> {
        let mut scene = Scene::with_fast_path("off", &[], Pods::Ipv4)?;
        scene.start_one(2, "auto")?;
        scene.cluster.wait_ready()?;
        let far = Far::open(&mut scene)?;
        far.datagrams.wait()?;
        Ok(Self { scene, far })
    }

    /// An agent that lacks this is ready and says so, and packets pass.
    fn lacks(&mut self, lack: &Lack) -> Result<(), LabError> {
        let scene = &mut self.scene;
        let name = scene.cluster[1].node.name();
        let bpffs = scene.cluster.lab().bpffs(&format!("bpf-{name}"))?;
        let script = lack.script.replace("BPFFS", &bpffs.to_string_lossy());
        let script = format!("set -e; {script}; exec \"$@\"");
        scene.start_one_with(1, lack.mode, |options| options.by_script(script))?;
        scene.cluster.wait_ready()?;
        says(scene, lack)?;
        if lack.word.is_empty() {
            return scene.wait_for(1, "vxlan-in");
        }
        let attached = attached(scene, 1)?;
        assert!(attached.is_empty(), "{}: {attached:?}", lack.says);
        self.far.datagrams.wait()
    }

    /// No packet was lost.
    fn end(self) {
        let [sent, arrived, answered] = self.far.datagrams.end();
        assert_eq!((sent, sent), (arrived, answered));
    }
}

#[test]
fn what_a_node_lacks_is_named_and_nothing_is_worse() -> Result<(), LabError> {
    let mut node = Node::new()?;
    LACKS.iter().try_for_each(|lack| node.lacks(lack))?;
    node.end();
    Ok(())
}

/// Where the file that says so can be seen, and where it cannot, as in a container.
#[test]
fn a_kernel_that_is_locked_down() -> Result<(), LabError> {
    let said = std::fs::read_to_string("/sys/kernel/security/lockdown");
    if !said.is_ok_and(|text| text.contains("[confidentiality]")) {
        println!("skipped: this kernel is not locked down for confidentiality");
        return Ok(());
    }
    let mut node = Node::new()?;
    for script in ["mount -t securityfs none /sys/kernel/security", "true"] {
        node.lacks(&Lack {
            script,
            mode: "on",
            word: "lockdown",
            says: "locked down for confidentiality",
        })?;
    }
    node.end();
    Ok(())
}
