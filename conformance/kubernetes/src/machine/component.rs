//! Starting and stopping the programs of a node.

use nix::sys::signal::Signal;

use super::{Machine, START_LIMIT};
use crate::config::NODE_FOLDER;
use crate::daemon::Daemon;
use crate::pki::node_file;
use tweed_lab::LabError;
use tweed_lab::{run, wait_until};

/// Programs of a node that a test may kill, stop and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The container runtime.
    Containerd,
    /// The agent of Kubernetes.
    Kubelet,
    /// The implementation of Services.
    KubeProxy,
}

impl Component {
    /// In the order in which they start.
    const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::KubeProxy];

    /// The program's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }
}

impl Machine {
    /// Stops a component by a signal and waits until it has ended. It is no error if
    /// it does not run.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end.
    pub fn stop(&self, component: Component, signal: Signal) -> Result<(), LabError> {
        let daemon = self.daemon(component);
        if daemon.is_running() {
            let (name, signal) = (component.name(), signal as i32);
            // It may end meanwhile, which is no error.
            let line = format!("kill -{signal} \"$(cat /run/node/{name}.pid)\" || true");
            self.sh(&line)?;
        }
        daemon.wait_for_end()
    }

    /// Starts a component that has been stopped.
    ///
    /// # Errors
    /// [`LabError::Ended`] or [`LabError::TimedOut`] with the end of its log.
    pub fn start(&self, component: Component) -> Result<(), LabError> {
        let folders = self.context.programs.folders();
        let paths = folders.iter().map(|one| one.display().to_string());
        let bin = paths.collect::<Vec<_>>().join(":");
        let file = |name: &str| format!("{NODE_FOLDER}/{name}");
        let arguments = match component {
            Component::Containerd => vec!["--config=/etc/containerd/config.toml".to_owned()],
            Component::Kubelet => vec![
                format!("--config={}", file("kubelet.yaml")),
                format!(
                    "--kubeconfig={}",
                    file(&format!("{}.kubeconfig", node_file(self.name())))
                ),
                format!("--hostname-override={}", self.name()),
                format!("--node-ip={}", self.spec.address),
            ],
            Component::KubeProxy if self.context.proxy().name().is_none() => return Ok(()),
            Component::KubeProxy => vec![format!("--config={}", file("kube-proxy.yaml"))],
        };
        let name = component.name();
        let mut command = self.command("sh");
        command
            .arg("-c")
            .arg(format!(
                "echo $$ >/run/node/{name}.pid; PATH={bin}:$PATH exec {name} \"$@\""
            ))
            .arg(name)
            .args(arguments);
        self.daemon(component)
            .start(&self.context.lab, &mut command)?;
        if component == Component::Containerd {
            self.wait_for_containerd()?;
        }
        Ok(())
    }

    /// Stops a component by a signal and starts it again.
    ///
    /// # Errors
    /// As [`Machine::stop`] and [`Machine::start`].
    pub fn restart(&self, component: Component, signal: Signal) -> Result<(), LabError> {
        self.stop(component, signal)?;
        self.start(component)
    }

    /// Checks that process 1 and all components run.
    ///
    /// # Errors
    /// [`LabError::Ended`] for the first that does not.
    pub fn check(&self) -> Result<(), LabError> {
        let components = Component::ALL
            .into_iter()
            .filter(|one| *one != Component::KubeProxy || self.context.proxy().name().is_some())
            .map(|one| self.daemon(one));
        match std::iter::once(self.init.clone())
            .chain(components)
            .find(|daemon| !daemon.is_running())
        {
            None => Ok(()),
            Some(ended) => Err(LabError::Ended {
                program: format!("{} of {}", ended.name(), self.name()),
                log_tail: ended.log_tail(),
            }),
        }
    }

    /// Stops kube-proxy, lets it remove its rules, and starts it in the current mode.
    pub(crate) fn change_proxy(&self) -> Result<(), LabError> {
        self.stop(Component::KubeProxy, Signal::SIGKILL)?;
        let program = self.context.programs.program("kube-proxy")?;
        run(self.command(program).arg("--cleanup"))?;
        self.disk.write_config(&self.context, &self.spec)?;
        self.start(Component::KubeProxy)
    }

    fn daemon(&self, component: Component) -> Daemon {
        Daemon::new(self.folder(), component.name())
    }

    fn wait_for_containerd(&self) -> Result<(), LabError> {
        let ctr = self.context.programs.program("ctr")?;
        let daemon = self.daemon(Component::Containerd);
        wait_until("containerd", START_LIMIT, || {
            if !daemon.is_running() {
                return Ok(Err(LabError::Ended {
                    program: format!("containerd of {}", self.name()),
                    log_tail: daemon.log_tail(),
                }));
            }
            match run(self.command(&ctr).args(["plugins", "list", "--quiet"])) {
                Ok(_) => Ok(Ok(())),
                Err(error) => Err(format!("{}; {}", error.chain(), daemon.log_tail())),
            }
        })?
    }
}
