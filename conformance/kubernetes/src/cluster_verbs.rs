//! `tweed-lab cluster`: a real Kubernetes cluster for a person to play with.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use tweed_lab::{Programs, leftovers, take_down};
use tweed_lab_kubernetes::{Cluster, Network, ProxyMode, Spec};

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Make one and leave it up.
    Up(Up),
    /// Take one away: its processes, mounts, cgroups and namespaces.
    Down {
        #[command(flatten)]
        name: ClusterName,
    },
    /// Tell which labs and clusters there are.
    List,
}

/// How it is to be.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    name: ClusterName,
    /// Nodes beside the control-plane node.
    #[arg(long, default_value_t = Spec::default().workers)]
    workers: u8,
    /// What connects the pods.
    #[arg(long, value_enum, default_value = "tweed")]
    network: NetworkChoice,
    /// The same as `--network none`: the nodes stay NotReady until something
    /// is installed. The image of tweed is there.
    #[arg(long, conflicts_with = "network")]
    bare: bool,
    /// kube-proxy's mode.
    #[arg(long, value_enum, default_value = "nftables")]
    proxy: ProxyChoice,
    /// An archive of images for every node; any number of times.
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterName {
    /// The cluster's name: that of each namespace starts with it.
    #[arg(long, value_name = "NAME", default_value = "cluster")]
    name: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NetworkChoice {
    /// tweed, by `kubectl apply -f install/tweed.yaml`.
    Tweed,
    /// The reference plugin `bridge`, with routes between the nodes.
    Reference,
    /// Nothing.
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProxyChoice {
    Nftables,
    Iptables,
    None,
}

impl Up {
    fn spec(&self) -> Result<Spec> {
        let network = match self.network {
            _ if self.bare => Network::None,
            NetworkChoice::Tweed => Network::Tweed,
            NetworkChoice::Reference => Network::Reference,
            NetworkChoice::None => Network::None,
        };
        let mut images = self.images.clone();
        if self.bare {
            let image = Programs::find()?.target().join("tweed-image.tar");
            images.extend(image.is_file().then_some(image));
        }
        Ok(Spec {
            workers: self.workers,
            network,
            proxy: match self.proxy {
                ProxyChoice::Nftables => ProxyMode::Nftables,
                ProxyChoice::Iptables => ProxyMode::Iptables,
                ProxyChoice::None => ProxyMode::None,
            },
            images,
        })
    }
}

/// Runs one verb.
///
/// # Errors
/// What could not be made or taken away.
pub(crate) fn run(out: &mut dyn Write, verb: &ClusterVerb) -> Result<()> {
    match verb {
        ClusterVerb::Up(options) => up(out, options),
        ClusterVerb::Down { name } => down(out, &name.name),
        ClusterVerb::List => list(out),
    }
}

fn up(out: &mut dyn Write, options: &Up) -> Result<()> {
    // A closed stdout is no reason to stop.
    let say = Box::new(|line: &str| drop(writeln!(std::io::stdout(), "{line}")));
    let name = &options.name.name;
    let cluster = Cluster::up(name, options.spec()?, say)?;
    cluster.keep()?;
    let scripts = cluster.scripts();
    let scripts = scripts.display();
    writeln!(
        out,
        "\nThe cluster {name} is up, and stays:\n\
         \x20   {scripts}/kubectl get nodes\n\
         \x20   {scripts}/kubectl run web --image=localhost/agnhost:lab -- netexec\n\
         \x20   {scripts}/node worker1 nft list table inet tweed\n\
         \x20   tail -f {}/state/worker1/kubelet.log\n\
         Take it away: tweed-lab cluster down --name {name}",
        cluster.lab().folder().display(),
    )?;
    Ok(())
}

fn down(out: &mut dyn Write, name: &str) -> Result<()> {
    let Some(lab) = leftovers()?.into_iter().find(|lab| lab.name == name) else {
        writeln!(out, "No {name} is up.")?;
        return Ok(());
    };
    if lab.in_use && !lab.kept {
        bail!("the lab {name} is {}: end that first (Ctrl-C)", lab.state());
    }
    let namespaces = take_down(name)?.len();
    writeln!(
        out,
        "Took the cluster {name} away: {namespaces} network namespaces and all in them."
    )?;
    Ok(())
}

fn list(out: &mut dyn Write) -> Result<()> {
    let found = leftovers()?;
    if found.is_empty() {
        writeln!(out, "None is up.")?;
    }
    for lab in found {
        writeln!(out, "{}: {}", lab.name, lab.state())?;
    }
    Ok(())
}
