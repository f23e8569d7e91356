//! Waiting until the agent has enforced the network policies for a new pod.
//!
//! While policies are in force a pod that is not enforced is isolated. So an ADD tells
//! the agent of its pod as soon as the record is written, makes the links meanwhile,
//! and then waits for the answer, so that the container starts with its network open as
//! far as the policies allow. The wait is bounded, and no ADD fails over it: a pod that
//! is enforced later is isolated until then. Its address may have been another pod's, for which
//! the agent still lists it as enforced, because it does not run or knows too little: so the
//! plugin itself takes the address off that list where the agent does not say that the new pod
//! is enforced.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tweed_cni::{Request, Target};
use tweed_core::agent_socket::client::Connection;
use tweed_core::agent_socket::message::{self, Answer, Judge, Pod};
use tweed_core::agent_state::POLICY_FILE;
use tweed_core::attachment::Attachment;
use tweed_core::text::one_line;

use crate::config::Settings;
use crate::datapath::Datapath;

/// Time beyond `policyWait` for the agent's answer, which says why it took so long.
const GRACE: Duration = Duration::from_millis(200);

/// How the policies come to be enforced for a new pod.
#[derive(Debug)]
pub enum Enforcement {
    /// No policy is in force, so there is nothing to enforce.
    NotInForce,
    /// Later: the config says not to wait, or the agent is not there.
    Later,
    /// The agent has been asked.
    Asked {
        /// Where it answers.
        connection: Connection,
        /// Until when.
        deadline: Instant,
    },
}

impl Enforcement {
    /// Asks the agent to enforce the policies for the pod, and does not wait. The pod's
    /// record must have been written.
    pub fn begin(
        settings: &Settings,
        request: &Request<'_>,
        target: &Target,
        addresses: &[IpAddr],
    ) -> Self {
        let (run_dir, wait) = (&settings.place.run_dir, settings.policy_wait);
        if !run_dir.join(POLICY_FILE).exists() {
            return Self::NotInForce;
        }
        if wait.is_zero() {
            return Self::Later;
        }
        let attachment = &target.attachment;
        let pod = target.args.pod.as_ref().map(|pod| Pod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: target.args.pod_uid.clone(),
        });
        let judge = message::Request::Judge(Judge {
            network: attachment.network.clone(),
            container_id: attachment.container_id.clone(),
            ifname: attachment.ifname.clone(),
            pod,
            addresses: addresses.to_vec(),
            wait_ms: wait.as_millis().try_into().unwrap_or(u64::MAX),
        });
        let deadline = Instant::now() + wait + GRACE;
        match Connection::ask(run_dir, &judge) {
            Ok(connection) => Self::Asked {
                connection,
                deadline,
            },
            Err(error) => {
                stays_isolated(request, attachment, &error);
                Self::Later
            }
        }
    }

    /// Waits for the answer of an agent that was asked. Whether the pod is not enforced: one log
    /// line says so.
    pub fn comes_late(self, request: &Request<'_>, attachment: &Attachment) -> bool {
        let Self::Asked {
            connection,
            deadline,
        } = self
        else {
            return false;
        };
        let refused = match connection.answer(deadline) {
            Ok(Answer::Judged {} | Answer::NotInForce {}) => return false,
            Ok(Answer::Pending { reason }) => reason,
            Ok(Answer::Error { message }) => format!("the agent refuses the request: {message}"),
            Err(error) => error.to_string(),
        };
        stays_isolated(request, attachment, &refused);
        true
    }
}

/// Lists addresses as not enforced, whoever had them before, and ends that one's flows. If the
/// agent enforces the new pod at the same moment, that is undone too, and the agent puts it back
/// once the kernel notifies it. If in doubt the pod stays isolated.
pub fn forget_earlier(
    datapath: &mut impl Datapath,
    request: &Request<'_>,
    attachment: &Attachment,
    addresses: &[IpAddr],
) {
    for address in addresses {
        if let Err(error) = datapath.forget_enforcement(*address) {
            request.log(format_args!(
                "warning: {attachment} may do what the pod could that had its address before, \
                 until the agent has enforced the network policies for it: {}",
                one_line(&error.to_string())
            ));
        }
    }
}

fn stays_isolated(request: &Request<'_>, attachment: &Attachment, why: &impl ToString) {
    request.log(format_args!(
        "warning: {attachment} is isolated until the agent has enforced the network policies \
         for it: {}",
        one_line(&why.to_string())
    ));
}
