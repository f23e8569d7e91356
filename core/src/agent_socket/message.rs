//! What the plugin asks and is answered, and how all messages are written and read.

use std::net::IpAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attachment::{ContainerId, IfName, NetworkName};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// Maximum length of a request with its line end, in bytes. The longest names and a
/// hundred addresses are a third of it.
pub const MAX_REQUEST: usize = 16 * 1024;
/// Maximum length of an answer with its line end, in bytes.
pub const MAX_ANSWER: usize = 256 * 1024;

/// Maximum time that a client may wait for a pod to be enforced: runtimes give an ADD
/// some minutes.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// What the plugin asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A pod has these addresses from now on: answer when it is no longer isolated.
    Judge(Judge),
}

/// A pod whose addresses wait for the policies to be enforced. Its record is in the store
/// already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judge {
    /// The network's name.
    pub network: NetworkName,
    /// The container.
    pub container_id: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
    /// The pod, where the runtime names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// How long the client waits at most, in milliseconds: up to [`MAX_WAIT`].
    pub wait_ms: u64,
}

/// A pod, as `CNI_ARGS` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`, which older runtimes do not give. For a static pod it is not the
    /// UID that the API server knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What the agent answers to the plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Judge`]: the addresses are enforced, and the kernel knows it.
    Judged {},
    /// To [`Request::Judge`]: no policy is in force, so nothing is isolated.
    NotInForce {},
    /// To [`Request::Judge`]: the pod is still isolated at the end of the wait. It is
    /// enforced as soon as the reason no longer holds.
    Pending {
        /// Why, as the end of a sentence.
        reason: String,
    },
    /// The request cannot be answered.
    Error {
        /// Why.
        message: String,
    },
}

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// More than the limit without a line end.
    #[error("a line of more than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection ended before the line did.
    #[error("a line without an end")]
    Cut,
    /// A version that this program does not speak.
    #[error("version {version} of the protocol; this program speaks version {VERSION}")]
    Version {
        /// The line's version.
        version: u32,
    },
    /// Not JSON, or a name or a key that this program does not know, or a bad value.
    #[error("a message that cannot be understood: {0}")]
    Unknown(#[from] serde_json::Error),
}

/// A request or an answer: it is one line, with a limit.
pub trait Message: Serialize + DeserializeOwned {
    /// Maximum length with the line end, in bytes.
    const MAX_LENGTH: usize;

    /// The message as a line.
    ///
    /// # Errors
    /// [`MessageError::TooLong`].
    fn to_line(&self) -> Result<Vec<u8>, MessageError> {
        let mut line = serde_json::to_vec(&Line {
            version: VERSION,
            message: self,
        })?;
        line.push(b'\n');
        if line.len() > Self::MAX_LENGTH {
            let limit = Self::MAX_LENGTH;
            return Err(MessageError::TooLong { limit });
        }
        Ok(line)
    }

    /// The message of the first line in `received`; none if its end has not come yet.
    /// What follows it is ignored.
    ///
    /// # Errors
    /// [`MessageError`], but not [`MessageError::Cut`].
    fn from_received(received: &[u8]) -> Result<Option<Self>, MessageError> {
        let end = received.iter().position(|byte| *byte == b'\n');
        if end.map_or(received.len(), |end| end + 1) > Self::MAX_LENGTH {
            let limit = Self::MAX_LENGTH;
            return Err(MessageError::TooLong { limit });
        }
        let Some(line) = end.and_then(|end| received.get(..end)) else {
            return Ok(None);
        };
        let Version { version } = serde_json::from_slice(line)?;
        let message = serde_json::from_slice::<Line<Self>>(line).map(|line| line.message);
        match message {
            Ok(message) if version == VERSION || message.is_of_every_version() => Ok(Some(message)),
            _ if version != VERSION => Err(MessageError::Version { version }),
            message => Ok(message.map(Some)?),
        }
    }

    /// Whether the message has the same form in every version of the protocol.
    fn is_of_every_version(&self) -> bool {
        false
    }
}

impl Message for Request {
    const MAX_LENGTH: usize = MAX_REQUEST;
}

impl Message for Answer {
    const MAX_LENGTH: usize = MAX_ANSWER;

    fn is_of_every_version(&self) -> bool {
        matches!(self, Self::Error { .. })
    }
}

#[derive(Serialize, Deserialize)]
struct Line<M> {
    version: u32,
    #[serde(flatten)]
    message: M,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        Judge {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new("4f").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            pod: Some(Pod {
                namespace: "default".to_owned(),
                name: "web-0".to_owned(),
                uid: Some("f0e1".to_owned()),
            }),
            addresses: vec!["10.244.1.5".parse().unwrap(), "fd00:1::5".parse().unwrap()],
            wait_ms: 2000,
        }
    }

    fn read<M: Message>(line: &str) -> Result<Option<M>, MessageError> {
        M::from_received(line.as_bytes())
    }

    fn refusal<M: Message + std::fmt::Debug>(line: &str) -> String {
        read::<M>(line).unwrap_err().to_string()
    }

    /// Frozen: plugin and agent of neighbouring versions talk to each other.
    #[test]
    fn the_bytes_of_the_messages_are_frozen() {
        let bare = Judge {
            pod: None,
            addresses: Vec::new(),
            ..judge()
        };
        for (request, line) in [
            (
                judge(),
                r#"{"version":1,"judge":{"network":"tweed","containerId":"4f","ifname":"eth0","pod":{"namespace":"default","name":"web-0","uid":"f0e1"},"addresses":["10.244.1.5","fd00:1::5"],"waitMs":2000}}"#,
            ),
            (
                bare,
                r#"{"version":1,"judge":{"network":"tweed","containerId":"4f","ifname":"eth0","addresses":[],"waitMs":2000}}"#,
            ),
        ] {
            let request = Request::Judge(request);
            let line = format!("{line}\n");
            assert_eq!(request.to_line().unwrap(), line.as_bytes());
            assert_eq!(read(&line).unwrap(), Some(request));
        }
        let (reason, message) = ("so".to_owned(), "no".to_owned());
        for (answer, line) in [
            (Answer::Judged {}, r#"{"version":1,"judged":{}}"#),
            (Answer::NotInForce {}, r#"{"version":1,"not-in-force":{}}"#),
            (
                Answer::Pending { reason },
                r#"{"version":1,"pending":{"reason":"so"}}"#,
            ),
            (
                Answer::Error { message },
                r#"{"version":1,"error":{"message":"no"}}"#,
            ),
        ] {
            let line = format!("{line}\n");
            assert_eq!(answer.to_line().unwrap(), line.as_bytes());
            assert_eq!(read(&line).unwrap(), Some(answer));
        }
    }

    #[test]
    fn what_a_neighbouring_version_adds_is_ignored() {
        let line = r#"{"new":7,"judge":{"new":[],"waitMs":1,"addresses":[],"ifname":"eth0","containerId":"4f","network":"tweed"},"version":1}"#;
        assert!(read::<Request>(&format!("{line}\n")).unwrap().is_some());
        let enforced = read(
            r#"{"version":1,"judged":{"new":true},"new":null}
"#,
        );
        assert_eq!(enforced.unwrap(), Some(Answer::Judged {}));
    }

    #[test]
    fn an_error_is_understood_in_every_version_and_nothing_else() {
        let error = read(
            r#"{"version":2,"error":{"message":"too new"}}
"#,
        );
        let message = "too new".to_owned();
        assert_eq!(error.unwrap(), Some(Answer::Error { message }));
        for line in [
            r#"{"version":2,"judged":{}}"#,
            r#"{"version":2,"later":{}}"#,
        ] {
            let refusal = refusal::<Answer>(&format!("{line}\n"));
            assert!(refusal.contains("version 2"), "{refusal}");
            assert!(refusal.contains("speaks version 1"), "{refusal}");
        }
        let refusal = refusal::<Request>("{\"version\":2,\"judge\":7}\n");
        assert!(refusal.contains("version 2"), "{refusal}");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for line in [
            "",
            "null",
            "{}",
            "[1]",
            r#"{"version":1}"#,
            r#"{"version":"1","judge":{}}"#,
            r#"{"version":1,"later":{}}"#,
            r#"{"version":1,"judge":{"network":"/"}}"#,
            "\u{0}",
        ] {
            refusal::<Request>(&format!("{line}\n"));
            refusal::<Answer>(&format!("{line}\n"));
        }
    }

    #[test]
    fn a_line_is_bounded_and_ends_with_its_line_end() {
        assert_eq!(read::<Request>("").unwrap(), None);
        let line = Request::Judge(judge()).to_line().unwrap();
        let cut = &line[..line.len() - 1];
        assert_eq!(Request::from_received(cut).unwrap(), None);
        let more = [&line, b"{".as_slice()].concat();
        let found = Request::from_received(&more).unwrap();
        assert_eq!(found, Some(Request::Judge(judge())));
        let long = vec![b' '; MAX_REQUEST + 1];
        let refused = Request::from_received(&long).unwrap_err().to_string();
        assert!(refused.contains("16384"), "{refused}");
        let reason = "x".repeat(MAX_ANSWER);
        let too_long = Answer::Pending { reason }.to_line();
        assert!(matches!(too_long, Err(MessageError::TooLong { .. })));
    }

    #[test]
    fn whatever_a_name_holds_the_message_is_one_line() {
        let mut judge = judge();
        judge.pod.as_mut().unwrap().name = "a\nb\r\u{2028}\"".to_owned();
        let request = Request::Judge(judge);
        let line = request.to_line().unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(Request::from_received(&line).unwrap(), Some(request));
    }
}
