//! Waiting until the agent has judged a new pod by the network policies.
//!
//! While policies are in force a pod that is not judged is isolated. So an ADD tells
//! the agent of its pod as soon as the record is written, makes the links meanwhile,
//! and then waits for the answer, so that the container starts with its network open as
//! far as the policies allow. The wait is bounded, and no ADD fails over it: a pod that
//! is judged later is isolated until then.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tweed_cni::{Request, Target};
use tweed_core::agent_socket::client::Connection;
use tweed_core::agent_socket::message::{self, Answer, Judge, Pod};
use tweed_core::agent_state::POLICY_FILE;
use tweed_core::attachment::Attachment;
use tweed_core::text::one_line;

use crate::config::Settings;

/// Time beyond `policyWait` for the agent's last word, which says why it took so long.
const GRACE: Duration = Duration::from_millis(200);

/// A question to the agent.
#[derive(Debug)]
pub struct Asked {
    connection: Connection,
    deadline: Instant,
}

impl Asked {
    /// Asks the agent for the pod's addresses to be judged, and does not wait. None if
    /// there is nothing to wait for: no policy is in force, or the config says not to,
    /// or the agent is not there. The pod's record must have been written.
    pub fn begin(
        settings: &Settings,
        request: &Request<'_>,
        target: &Target,
        addresses: &[IpAddr],
    ) -> Option<Self> {
        let (run_dir, wait) = (&settings.place.run_dir, settings.policy_wait);
        if wait.is_zero() || !run_dir.join(POLICY_FILE).exists() {
            return None;
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
            Ok(connection) => Some(Self {
                connection,
                deadline,
            }),
            Err(error) => {
                stays_isolated(request, attachment, &error);
                None
            }
        }
    }

    /// Waits for the answer. One log line says so if the pod is still isolated.
    pub fn wait(self, request: &Request<'_>, attachment: &Attachment) {
        let refused = match self.connection.answer(self.deadline) {
            Ok(Answer::Judged {} | Answer::NotInForce {}) => return,
            Ok(Answer::Pending { reason }) => reason,
            Ok(Answer::Explained(_) | Answer::Located(_)) => {
                "the agent answers another request".to_owned()
            }
            Ok(Answer::Error { message }) => format!("the agent refuses the request: {message}"),
            Err(error) => error.to_string(),
        };
        stays_isolated(request, attachment, &refused);
    }
}

fn stays_isolated(request: &Request<'_>, attachment: &Attachment, why: &impl ToString) {
    request.log(format_args!(
        "warning: {attachment} is isolated until the agent has judged it by the network \
         policies: {}",
        one_line(&why.to_string())
    ));
}
