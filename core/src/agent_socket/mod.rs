//! The agent's local socket, `agent.sock` in the run folder: what programs on the node
//! ask the agent, and what it answers.
//!
//! A client connects, sends one line and reads one line; then the connection ends. A
//! line is a JSON object with the number of the protocol's version and one more key,
//! which names the request or the answer:
//!
//! ```text
//! {"version":1,"judge":{"network":"tweed","containerId":"4f","ifname":"eth0","addresses":["10.244.1.5"],"waitMs":2000}}
//! {"version":1,"judged":{}}
//! ```
//!
//! Programs of neighbouring versions understand each other: unknown keys are ignored, a
//! new key has a default, and a new request is one more name, to which an older agent
//! answers `error`. Only a change that breaks this gets another version number. `error`
//! has the same form in every version. What people ask is a request that the agent itself
//! adds, for only its own commands send it.
//!
//! | module | what is in it |
//! |---|---|
//! | [`message`] | what the plugin asks, and how messages are written and read |
//! | [`path`] | the socket's path, also where it is longer than a socket's address |
//! | [`client`] | asking the agent, without threads and in bounded time |
//!
//! Only root may connect: the socket has mode 0600, and connecting needs the right to
//! write to it (unix(7)). The agent need not ask who the peer is: a process that may
//! connect all the same, with `CAP_DAC_OVERRIDE`, could also replace the socket.

pub mod client;
pub mod message;
pub mod path;
