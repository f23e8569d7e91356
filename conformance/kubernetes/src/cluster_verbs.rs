//! `tweed-lab cluster`: creates, removes and lists real Kubernetes clusters.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use tweed_lab::{Programs, existing_labs, take_down};
use tweed_lab_kubernetes::{Cluster, Network, ProxyMode, Spec};

/// The verbs of `tweed-lab cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Create a cluster and keep it.
    Up(Up),
    /// Remove a cluster: its processes, mounts, cgroups and namespaces.
    Down {
        #[command(flatten)]
        name: ClusterName,
    },
    /// List labs and clusters.
    List,
}

/// Options of a new cluster.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    name: ClusterName,
    /// Number of nodes beside the control-plane node.
    #[arg(long, default_value_t = Spec::default().workers)]
    workers: u8,
    /// The pods' network.
    #[arg(long, value_enum, default_value = "tweed")]
    network: NetworkChoice,
    /// The same as `--network none`, with tweed's image on the nodes: they stay
    /// NotReady until a network is installed.
    #[arg(long, conflicts_with = "network")]
    bare: bool,
    /// What serves Services: a mode of kube-proxy, or tweed.
    #[arg(long, value_enum, default_value = "nftables")]
    proxy: ProxyChoice,
    /// An archive of images to import on every node; can be repeated.
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// Gives pods addresses of both families, and Services that want them too.
    #[arg(long)]
    dual_stack: bool,
    /// One of the versions in conformance/kubernetes/other-versions, instead of the
    /// usual one.
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterName {
    /// The cluster's name, with which the name of each of its namespaces starts.
    #[arg(long, value_name = "NAME", default_value = "cluster")]
    name: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NetworkChoice {
    /// tweed, by the manifest for the cluster's proxy.
    Tweed,
    /// The reference plugin `bridge`, with routes between the nodes.
    Reference,
    /// No network.
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProxyChoice {
    /// kube-proxy with nftables.
    Nftables,
    /// kube-proxy with iptables.
    Iptables,
    /// tweed with `--services on`, and no kube-proxy.
    Tweed,
    /// No Services.
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
        if self.dual_stack && network == Network::Reference {
            bail!("the reference network has IPv4 alone: --dual-stack needs tweed's, or none");
        }
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
                ProxyChoice::Tweed => ProxyMode::Tweed,
                ProxyChoice::None => ProxyMode::None,
            },
            dual_stack: self.dual_stack,
            images,
            kubernetes: self.kubernetes.clone(),
            release: None,
        })
    }
}

/// Runs one verb.
///
/// # Errors
/// What could not be created or removed.
pub(crate) fn run(out: &mut dyn Write, verb: &ClusterVerb) -> Result<()> {
    match verb {
        ClusterVerb::Up(options) => up(out, options),
        ClusterVerb::Down { name } => down(out, &name.name),
        ClusterVerb::List => list(out),
    }
}

fn up(out: &mut dyn Write, options: &Up) -> Result<()> {
    // Progress is not essential: a closed stdout does not stop it.
    let progress = Box::new(|line: &str| drop(writeln!(std::io::stdout(), "{line}")));
    let name = &options.name.name;
    let cluster = Cluster::up(name, options.spec()?, progress)?;
    cluster.keep()?;
    let folder = cluster.scripts();
    let scripts = folder.display();
    writeln!(
        out,
        "\nThe cluster {name} is up and stays:\n\
         \x20   {scripts}/kubectl get nodes\n\
         \x20   {scripts}/kubectl run web --image=localhost/agnhost:lab -- netexec\n\
         \x20   {scripts}/node worker1 nft list table inet tweed\n\
         \x20   tail -f {}/state/worker1/kubelet.log\n\
         To remove it: tweed-lab cluster down --name {name}",
        cluster.lab().folder().display(),
    )?;
    Ok(())
}

fn down(out: &mut dyn Write, name: &str) -> Result<()> {
    let Some(lab) = existing_labs()?.into_iter().find(|lab| lab.name == name) else {
        writeln!(out, "There is no cluster {name}.")?;
        return Ok(());
    };
    if lab.in_use && !lab.kept {
        bail!(
            "the lab {name} is {}: end that process first (Ctrl-C)",
            lab.state()
        );
    }
    let namespaces = take_down(name)?.len();
    writeln!(
        out,
        "Removed the cluster {name}: {namespaces} network namespaces and everything in them."
    )?;
    Ok(())
}

fn list(out: &mut dyn Write) -> Result<()> {
    let found = existing_labs()?;
    if found.is_empty() {
        writeln!(out, "There is none.")?;
    }
    for lab in found {
        writeln!(out, "{}: {}", lab.name, lab.state())?;
    }
    Ok(())
}
