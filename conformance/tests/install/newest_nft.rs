//! The newest `nft` that Debian offers beside this machine's own: each as the agent's, while
//! the other one has made a table beside those of tweed and lists all of them.

use std::time::Duration;

use serde_json::Value;
use tweed_lab::{
    AgentOptions, Cluster, ClusterPod, LabError, Netns, Programs, command_line, run, run_with,
    wait_until,
};

use crate::uninstall::tweed_install;

const LIMIT: Duration = Duration::from_secs(30);

/// The name of the tables of tweed, all of family `inet`.
const OWN: [&str; 3] = ["tweed", "tweed-policy", "tweed-services"];

/// A Service and a policy, so that all of them exist. The policy allows what the test does.
const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec:
  type: ClusterIP
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ports:
    - {name: tcp, protocol: TCP, port: 7000}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
  - {addresses: [POD], nodeName: node1, conditions: {ready: true}}
ports:
  - {name: tcp, protocol: TCP, port: 7001}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: from-anyone}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]
";

/// All that `nft` keeps of a table for itself: comments of each kind, how a set was declared,
/// what an element holds, of late its own version.
const COMMENTED: &str = "
table inet other {
  comment \"a table\"
  set by_typeof {
    typeof ip saddr . meta mark
    flags dynamic, timeout
    size 16
    elements = { 192.0.2.9 . 0x1 comment \"an element\" }
  }
  map of_intervals {
    typeof ip saddr . tcp dport : meta mark
    flags interval, timeout
    counter
    elements = { 192.0.2.0/28 . 80-90 timeout 1h comment \"an interval\" : 0x7 }
  }
  chain input {
    type filter hook input priority -250; policy accept;
    ip saddr . meta mark @by_typeof counter comment \"a rule\"
    meta mark set ip saddr . tcp dport map @of_intervals
  }
}
";

/// What only newer versions know: operations on two registers, and packets within VXLAN.
/// nft 1.0.6 cannot list it.
const NEWER: &str = "
table inet other {
  counter seen { comment \"an object\"; }
  set inner {
    comment \"a set\"
    typeof vxlan ip saddr
    counter
    limit rate 5/second
    elements = { 10.0.0.1 comment \"within VXLAN\" }
  }
  chain input {
    comment \"a chain\"
    meta mark set meta mark and ct mark
    ct mark set meta mark or ct mark comment \"two registers\"
    udp dport 4789 vxlan ip saddr @inner last counter name seen
  }
}
";

/// nft 1.0.6 crashes over each of these sets, whatever it is asked to do.
const BY_TYPE: &str = "
table inet other {
  set addresses { type ipv4_addr; flags interval; elements = { 192.0.2.0/28 }; }
  map verdicts { type inet_service : verdict; }
  chain input { ip saddr vmap { 192.0.2.77 : drop }; }
}
";

const OTHER: [&str; 6] = ["-s", "-a", "list", "table", "inet", "other"];

fn options(options: AgentOptions, nft: &str) -> AgentOptions {
    options.env("TWEED_NFT", nft).arg("--services=on")
}

/// A node with everything of tweed, whose agent uses one `nft` and somebody else another.
struct Node {
    cluster: Cluster,
    pods: [ClusterPod; 2],
    others: String,
}

impl Node {
    fn new(of_agent: &str, of_others: &str) -> Result<Self, LabError> {
        let mut cluster = Cluster::start_with(2, |agent| options(agent, of_agent))?;
        let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
        let client = cluster.labelled_pod(2, "shop/client", "app=client")?;
        let objects = OBJECTS.replace("POD", &server.address().to_string());
        cluster.apply("objects", objects)?;
        let node = Self {
            cluster,
            pods: [server, client],
            others: of_others.to_owned(),
        };
        wait_until("all tables of tweed to be whole", LIMIT, || {
            let server = node.pods[0].address().to_string();
            for (table, part) in OWN.into_iter().zip([&server, &server, "10.96.0.10"]) {
                let words = ["-s", "list", "table", "inet", table];
                let listed = node.nft(&words).map_err(|error| error.chain())?;
                if !listed.contains(part) {
                    return Err(format!("no {part} in {listed}"));
                }
            }
            Ok(())
        })?;
        node.serves()?;
        Ok(node)
    }

    fn netns(&self) -> &Netns {
        self.cluster[1].node.netns()
    }

    /// What the other `nft` prints, which must succeed, and the newest complain of nothing.
    fn nft(&self, arguments: &[&str]) -> Result<String, LabError> {
        let mut command = self.netns().command(&self.others);
        let output = command.args(arguments).output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        // nft 1.0.6 warns in JSON of statements that tweed's tables have.
        if output.status.success() && (err.is_empty() || self.others == "nft") {
            return Ok(out);
        }
        Err(LabError::Failed {
            command: command_line(&command),
            status: output.status,
            output: err,
        })
    }

    /// The tables of tweed, as the other `nft` shows them.
    fn own(&self, options: &[&str]) -> Result<String, LabError> {
        let tables = OWN.iter();
        let lists = tables.map(|table| {
            let what = ["list", "table", "inet", table];
            self.nft(&[options, &what].concat())
        });
        lists.collect()
    }

    fn serves(&self) -> Result<(), LabError> {
        let [server, client] = &self.pods;
        Cluster::wait_for_path(client.netns(), server.address())
    }

    /// What `tweed-install check` and `tweedctl doctor` say.
    fn findings(&self) -> Result<[String; 2], LabError> {
        let check = tweed_install(&self.cluster, &["check", "--nft", &self.others]);
        let node = &self.cluster[1].node;
        let program = self.cluster.lab().programs().own("tweedctl")?;
        let mut doctor = node.netns().command(program);
        doctor.arg("doctor").arg("--run-dir").arg(node.run_dir());
        // They fail where they have found something.
        let said =
            |outcome: Result<String, LabError>| outcome.unwrap_or_else(|error| error.chain());
        Ok([said(check), said(run(&mut doctor))])
    }

    /// Somebody loads these.
    fn make(&self, tables: &[&str]) -> Result<(), LabError> {
        let mut command = self.netns().command(&self.others);
        run_with(command.args(["-f", "-"]), &tables.concat()).map(drop)
    }

    /// The agent ends, and another one starts with this `nft`.
    fn restart(&mut self, of_agent: &str) -> Result<(), LabError> {
        self.cluster.stop_agent(1)?;
        let options = options(AgentOptions::new(self.cluster.nodes_file()), of_agent);
        let entry = self.cluster.entry(1)?;
        entry.agent = Some(entry.node.start_agent(&options)?);
        self.cluster.wait_ready()
    }

    /// Waits until the agent's answer to a probe has these words.
    fn says(&self, words: &str) -> Result<(), LabError> {
        let agent = self.cluster[1].agent.as_ref().unwrap();
        let what = format!("/readyz with {words:?}");
        wait_until(&what, LIMIT, || match agent.get("/readyz") {
            Ok((_, body)) if body.contains(words) => Ok(()),
            Ok((code, body)) => Err(format!("{code}: {body}")),
            Err(error) => Err(error.chain()),
        })
    }

    /// Empties a chain, and waits until the tables are as before.
    fn is_put_back(&self, chain: &str) -> Result<(), LabError> {
        let before = self.own(&["-s"])?;
        self.nft(&["flush", "chain", "inet", "tweed", chain])?;
        wait_until("the rules to come back", LIMIT, || {
            match self.own(&["-s"]) {
                Ok(now) if now == before => Ok(()),
                Ok(now) => Err(now),
                Err(error) => Err(error.chain()),
            }
        })?;
        assert_ne!(self.repairs(), 0);
        Ok(())
    }

    /// How often the node's agents have put something back so far.
    fn repairs(&self) -> usize {
        let log = self.cluster[1].agent.as_ref().unwrap().log();
        log.matches("put back what something else changed").count()
    }
}

/// The tables of tweed and of somebody else, made and listed by two versions of `nft`.
fn side_by_side(of_agent: &str, of_others: &str, tables: &[&str]) -> Result<(), LabError> {
    let mut node = Node::new(of_agent, of_others)?;
    let findings = node.findings()?;
    let own = node.own(&["-s", "-a"])?;
    node.make(tables)?;
    let whole = node.nft(&OTHER)?;
    for part in ["a table", "an element", "an interval", "a rule"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    node.nft(&["list", "ruleset"])?;
    let ruleset: Value = serde_json::from_str(&node.nft(&["-j", "list", "ruleset"])?).unwrap();
    let objects = ruleset["nftables"].as_array().unwrap();
    for name in OWN.into_iter().chain(["other"]) {
        assert!(objects.iter().any(|o| o["table"]["name"] == name), "{name}");
    }
    node.serves()?;
    assert_eq!(node.findings()?, findings);
    assert_eq!(node.own(&["-s", "-a"])?, own, "the agent has seen drift");
    assert_eq!(node.repairs(), 0);

    // What is broken is put back, and nothing else.
    node.is_put_back("prerouting_raw")?;
    assert_eq!(node.nft(&OTHER)?, whole);

    // Its rules are read: one that drops VXLAN is named with its table.
    let drop = "add rule inet other input udp dport 8472 drop comment \"no_VXLAN\"";
    node.nft(&drop.split(' ').collect::<Vec<_>>())?;
    node.says("inbound-drop")?;
    let [_, doctor] = node.findings()?;
    assert!(doctor.contains("inet other"), "{doctor}");
    node.nft(&["delete", "table", "inet", "other"])?;
    node.serves()?;

    // Another agent finds everything as it should be.
    node.make(tables)?;
    let (own, repairs) = (node.own(&["-s", "-a"])?, node.repairs());
    node.restart(of_agent)?;
    node.serves()?;
    assert_eq!(node.own(&["-s", "-a"])?, own, "made anew");
    assert_eq!(node.repairs(), repairs);
    Ok(())
}

fn newest() -> String {
    let path = Programs::find().unwrap().tool("nft-newest").unwrap();
    path.display().to_string()
}

#[test]
fn this_machines_nft_beside_a_table_of_the_newest() -> Result<(), LabError> {
    side_by_side("nft", &newest(), &[COMMENTED, NEWER])
}

#[test]
fn the_newest_nft_beside_a_table_of_this_machines() -> Result<(), LabError> {
    side_by_side(&newest(), "nft", &[COMMENTED])
}

#[test]
fn the_newest_nft_beside_its_own_table() -> Result<(), LabError> {
    side_by_side(&newest(), &newest(), &[COMMENTED, NEWER, BY_TYPE])
}

/// The agent says what helps, and that does help.
#[test]
fn an_nft_that_crashes_over_a_table_of_the_newest_is_named() -> Result<(), LabError> {
    let mut node = Node::new("nft", &newest())?;
    node.make(&[COMMENTED, BY_TYPE])?;
    let whole = node.nft(&OTHER)?;
    if node.netns().sh("nft list ruleset").is_ok() {
        println!("nft does not crash here, so there is nothing to say");
        return Ok(());
    }
    node.nft(&["flush", "chain", "inet", "tweed", "prerouting_raw"])?;
    node.says("by --nft")?;
    node.restart(&newest())?;
    let rules = ["list", "chain", "inet", "tweed", "prerouting_raw"];
    wait_until("the rules to come back", LIMIT, || match node.nft(&rules) {
        Ok(rules) if rules.contains("goto from_pod") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    node.is_put_back("vxlan_in")?;
    assert_eq!(node.nft(&OTHER)?, whole);
    Ok(())
}
